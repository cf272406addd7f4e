-- starts: how many jobs began within each name's window, and when the first of them did.
-- takes: now timestamptz
-- items: name text, window interval
-- gives: name text, jobs int8, oldest_at timestamptz
select x.name, coalesce(sum(s.jobs), 0)::bigint as jobs, min(s.begun_at) as oldest_at
from unnest(:name::text[], :window::interval[]) as x(name, window_)
left join tidemill.starts s on s.name = x.name and s.begun_at > coalesce(:now::timestamptz, now()) - x.window_
group by x.name

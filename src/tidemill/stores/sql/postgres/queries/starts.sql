-- starts: the number of starts within each name's window, the first of them, and the number in the future.
-- Starts in the future were recorded before the clock was set back. A removed record has a negative counterpart.
-- takes: now timestamptz
-- items: name text, window interval
-- gives: name text, jobs int8, oldest_at timestamptz, ahead int8
select x.name, coalesce(sum(s.jobs) filter (where s.begun_at <= coalesce(:now::timestamptz, now())), 0)::bigint as jobs,
       min(s.begun_at) as oldest_at,
       coalesce(sum(s.jobs) filter (where s.begun_at > coalesce(:now::timestamptz, now())), 0)::bigint as ahead
from unnest(:name::text[], :window::interval[]) as x(name, window_)
left join lateral (
  select s.begun_at, sum(s.jobs) as jobs from tidemill.starts s
  where s.name = x.name and s.begun_at > coalesce(:now::timestamptz, now()) - x.window_
  group by s.begun_at having sum(s.jobs) > 0) s on true
group by x.name

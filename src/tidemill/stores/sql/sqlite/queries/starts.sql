-- starts: how many jobs began within each name's window, and when the first of them did.
-- takes: now timestamptz
-- items: name text, window interval
-- gives: name text, jobs int8, oldest_at timestamptz
delete from temp.tidemill_windows
;
insert or replace into temp.tidemill_windows(name, since_at) values (:name, :now - :window)
;
select x.name, coalesce(sum(s.jobs), 0) as jobs, min(s.begun_at) as oldest_at
from temp.tidemill_windows x left join tidemill_starts s on s.name = x.name and s.begun_at > x.since_at
group by x.name

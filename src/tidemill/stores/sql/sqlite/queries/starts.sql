-- starts: the number of starts within each name's window, the first of them, and the number in the future.
-- Starts in the future were recorded before the clock was set back. A removed record has a negative counterpart.
-- takes: now timestamptz
-- items: name text, window interval
-- gives: name text, jobs int8, oldest_at timestamptz, ahead int8
delete from temp.tidemill_windows
;
insert or replace into temp.tidemill_windows(name, since_at) values (:name, :now - :window)
;
select x.name, coalesce(sum(s.jobs) filter (where s.begun_at <= :now), 0) as jobs, min(s.begun_at) as oldest_at,
       coalesce(sum(s.jobs) filter (where s.begun_at > :now), 0) as ahead
from temp.tidemill_windows x
left join (select s.name, s.begun_at, sum(s.jobs) as jobs
           from temp.tidemill_windows w cross join tidemill_starts s on s.name = w.name and s.begun_at > w.since_at
           group by s.name, s.begun_at having sum(s.jobs) > 0) s on s.name = x.name
group by x.name

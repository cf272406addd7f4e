-- lock_uses: the counts of these names, and the time, on which the room of some limits depends. A write transaction excludes other
-- writers, so nothing is locked and `skips` has no effect.
-- takes: now timestamptz, names texts
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select u.name, u.used, u.full_until_at, u.breaker, :now as now
from json_each(:names) x cross join tidemill_uses u on u.name = x.value
where true
  and true -- when skips
order by u.name

-- lock_uses: what is counted of these names. With the time, which the room of some limits depends on. Nobody else writes
-- meanwhile, so nothing is locked.
-- takes: now timestamptz, names texts
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select u.name, u.used, u.full_until_at, u.breaker, :now as now
from json_each(:names) x cross join tidemill_uses u on u.name = x.value order by u.name

-- lock_uses: what is counted of these names, locked to be counted on; names another holds are left out. With the time, which the
-- room of some limits depends on. What began is asked for afterwards: a statement that waited or not sees only what was before it.
-- takes: now timestamptz, names texts
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select u.name, u.used, u.full_until_at, u.breaker, coalesce(:now::timestamptz, now()) as now
from tidemill.uses u where u.name = any(:names::text[]) order by u.name for update skip locked

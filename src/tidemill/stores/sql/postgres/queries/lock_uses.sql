-- lock_uses: the counts of these names, locked in their order; with `skips`, names that are locked already are skipped. Returns also
-- the time, on which the room of some limits depends. Starts are read afterwards: a statement sees only what was committed before it.
-- takes: now timestamptz, names texts
-- gives: name text, used int4, full_until_at timestamptz, breaker text, now timestamptz
select u.name, u.used, u.full_until_at, u.breaker, coalesce(:now::timestamptz, now()) as now
from tidemill.uses u where u.name = any(:names::text[]) order by u.name for update
skip locked -- when skips

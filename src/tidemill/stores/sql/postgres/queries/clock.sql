-- clock: the store's own time.
-- takes: now timestamptz
-- gives: now timestamptz
select coalesce(:now::timestamptz, now()) as now

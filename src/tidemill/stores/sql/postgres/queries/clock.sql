-- clock: the store's own time, which goes on within a transaction.
-- takes: now timestamptz
-- gives: now timestamptz
select coalesce(:now::timestamptz, clock_timestamp()) as now

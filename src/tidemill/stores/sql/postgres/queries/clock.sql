-- clock: the store's time, which advances within a transaction.
-- takes: now timestamptz
-- gives: now timestamptz
select coalesce(:now::timestamptz, clock_timestamp()) as now

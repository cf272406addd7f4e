-- clock: the store's time.
-- takes: now timestamptz
-- gives: now timestamptz
select :now as now

-- clock: the store's own time.
-- takes: now timestamptz
-- gives: now timestamptz
select :now as now

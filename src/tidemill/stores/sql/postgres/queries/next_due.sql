-- next_due: when the next job is to be promoted. Indexes: scheduled_due, parked_due.
-- gives: run_at timestamptz
select least((select min(run_at) from tidemill.scheduled), (select min(run_at) from tidemill.parked where wakes)) as run_at

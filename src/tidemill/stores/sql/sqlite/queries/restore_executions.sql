-- restore_executions: inserts the executions of restored jobs that did not end them.
-- items: job_id uuid, number int8, attempt int4, state text, worker uuid, claimed_at timestamptz, started_at timestamptz
-- items: finished_at timestamptz, error text, reason text
insert into tidemill_executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
values (:job_id, :number, :attempt, :state, :worker, :claimed_at, :started_at, :finished_at, :error, :reason)

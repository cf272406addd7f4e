-- ended_columns: the columns of a job that a worker ended, with its last execution.
-- include: job_columns
, attempt, crashes, token, run_at, unique_key, reason, state, execution, worker, claimed_at, started_at, finished_at, cancel_reason,
progress, result, error

-- job_row: a whole job, in the order that Python expects.
-- gives: id uuid, tenant text, queue text, task text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval
-- gives: unique_key text, limits text, detailed bool, reason text, args text, state text, execution text, worker uuid
-- gives: claimed_at timestamptz, started_at timestamptz, finished_at timestamptz, cancel_reason text, progress text
-- gives: result text, error text
id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout, unique_key, limits,
detailed, reason, {args} as args, state, execution, worker, claimed_at, started_at, finished_at, cancel_reason, progress,
{result} as result, error

-- held_row: a held job `r`, in the order that Python expects.
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, state text, cancel_reason text, worker uuid
r.id, r.task, r.queue, r.tenant, r.priority, r.attempt, r.max_attempts, r.crashes, r.token, r.run_at, r.created_at, r.expires_at,
r.timeout, r.args, r.unique_key, r.limits, r.detailed, r.state, r.cancel_reason, r.worker

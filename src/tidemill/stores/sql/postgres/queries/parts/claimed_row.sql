-- claimed_row: a job of `got` after its claim, in the order that Python expects.
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, seq int8
id, task, queue, tenant, priority, attempt + 1 as attempt, max_attempts, crashes, token + 1 as token, run_at, created_at, expires_at,
timeout, args, case when not until_claimed then unique_key end as unique_key, limits, detailed, seq

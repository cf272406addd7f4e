-- job_columns: the columns of a job that never change, in every table that holds jobs.
id, tenant, queue, task, priority, max_attempts, created_at, expires_at, timeout, limits, detailed, args, tied

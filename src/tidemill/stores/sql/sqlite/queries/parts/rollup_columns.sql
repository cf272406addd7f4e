-- rollup_columns: the columns of a rollup.
scope, at, unit, tenant, task, queue, worker, state, jobs, retried, attempts, most_attempts, ran,
run_time, longest, lag, longest_lag, last_at

-- add_to_rollups: adds to the rollups that exist.
on conflict (scope, at, unit, tenant, task, queue, worker, state) do update set
  jobs = r.jobs + excluded.jobs, retried = r.retried + excluded.retried, attempts = r.attempts + excluded.attempts,
  most_attempts = max(r.most_attempts, excluded.most_attempts), ran = r.ran + excluded.ran,
  run_time = r.run_time + excluded.run_time, longest = max(r.longest, excluded.longest), lag = r.lag + excluded.lag,
  longest_lag = max(r.longest_lag, excluded.longest_lag), last_at = max(r.last_at, excluded.last_at)

-- record_failures: records the failures among the jobs that this statement ends.
failed as (
  insert into tidemill.failures(at, first_at, tenant, task, fingerprint, variant, cause, message, job_id, jobs)
  select {at}, {at}, tenant, task, fingerprint, variant, cause, message, id, 1
  from {jobs}),

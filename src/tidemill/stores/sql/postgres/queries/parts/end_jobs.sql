-- end_jobs: moves the jobs of `gone` to history, and counts their ends.
ended as (
  insert into tidemill.history(
    -- include: ended_columns
    )
  select
    -- include: job_columns
    , attempt, crashes + crashed::int, token, run_at, unique_key, reason, to_state, execution, worker, claimed_at,
    coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => started_ago), started_at),
    coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago), cancel_reason, progress, result, error
  from gone
  returning tenant, task, queue, worker, state, execution, attempt, run_at, started_at, finished_at),
-- include: record_failures(jobs=gone where fingerprint is not null; at=coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago)) -- when failing
ending as (select * from ended),
-- include: journal_ends

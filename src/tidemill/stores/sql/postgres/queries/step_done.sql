-- step_done: as `step`, for a batch of jobs that all succeeded: their common values are not sent for each of them.
-- PostgreSQL only, like `step`. Lines for jobs that keep less than everything are present only if the batch has one.
-- items: id uuid, token int8, result text, started_ago float8, ended_ago float8, keep text
with item as materialized (
  select x.*, :worker::uuid as worker
  from unnest(:id::uuid[], :token::bigint[], :result::text[], :started_ago::float8[], :ended_ago::float8[]
              , :keep::text[] -- when light
              )
    as x(id, token, result, started_ago, ended_ago
         , keep -- when light
         )
  order by id),
gone as (
  -- include: fenced
    and not r.tied
  returning r.*, x.result, x.started_ago, x.ended_ago
            , x.keep -- when light
  ),
ended as (
  insert into tidemill.history(
    -- include: ended_columns
    )
  select
    -- include: job_columns
    , attempt, crashes, token, run_at, unique_key, null, 'completed', 'succeeded', worker, claimed_at,
    coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => started_ago), started_at),
    coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago), cancel_reason, progress, result, null
  from gone
  where keep <> 'nothing' -- when light
  returning tenant, task, queue, worker, state, execution, attempt, run_at, started_at, finished_at),
ending as (
  select * from ended
  union all -- when light
  select tenant, task, queue, worker, 'completed', 'succeeded', attempt, run_at, -- when light
         coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => started_ago), started_at), -- when light
         coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago) -- when light
  from gone where keep = 'nothing' -- when light
  ),
-- include: journal_ends
-- include: light_jobs -- when light
-- include: step_claim

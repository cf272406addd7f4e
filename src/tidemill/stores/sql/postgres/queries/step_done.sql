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
  ),
counted as (
  -- As `journal_ends`, but of ages instead of instants, and grouped without the values that all these jobs have in common.
  insert into tidemill.ends(
    at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
    longest, lag, longest_lag, last_at)
  select date_bin('1 minute', e.finished_at, 'epoch'), e.tenant, e.task, e.queue, :worker::uuid, 'completed', 'succeeded',
         -- include: time_bucket(value=e.run_time)
         ,
         -- include: time_bucket(value=e.lag)
         , count(*), count(*) filter (where e.attempt > 1), sum(e.attempt), max(e.attempt), coalesce(sum(e.run_time), 0),
         coalesce(max(e.run_time), 0), coalesce(sum(e.lag), 0), coalesce(max(e.lag), 0), max(e.finished_at)
  from (
    select tenant, task, queue, attempt, finished_at, greatest(began - ended, 0) as run_time, greatest(due - began, 0) as lag
    from (
      select tenant, task, queue, attempt, coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago) as finished_at,
             (ended_ago * 1000000)::int8 as ended,
             (date_part('epoch', coalesce(:now::timestamptz, now()) - run_at) * 1000000)::int8 as due,
             coalesce((started_ago * 1000000)::int8,
                      (date_part('epoch', coalesce(:now::timestamptz, now()) - started_at) * 1000000)::int8) as began
      from gone
      offset 0) a
    offset 0) e
  group by 1, 2, 3, 4, 8, 9),
-- include: light_jobs -- when light
-- include: step_claim

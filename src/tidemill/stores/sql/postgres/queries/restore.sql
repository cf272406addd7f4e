-- restore: inserts ended jobs with their details, each only if no live job has its id; returns the inserted ids.
-- items: id uuid, tenant text, queue text, task text, priority int2, attempt int4, max_attempts int4, crashes int4, token int8
-- items: run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, unique_key text, limits text
-- items: details text, reason text, args text, state text, execution text, worker uuid, claimed_at timestamptz
-- items: started_at timestamptz, finished_at timestamptz, cancel_reason text, progress text, result text, error text
-- gives: id uuid
with item as materialized (
  select x.*, x.details is not null as detailed
  from unnest(:id::uuid[], :tenant::text[], :queue::text[], :task::text[], :priority::smallint[], :attempt::int[],
              :max_attempts::int[], :crashes::int[], :token::bigint[], :run_at::timestamptz[],
              :created_at::timestamptz[], :expires_at::timestamptz[], :timeout::interval[], :unique_key::text[],
              :limits::text[], :details::text[], :reason::text[], :args::text[], :state::text[], :execution::text[],
              :worker::uuid[], :claimed_at::timestamptz[], :started_at::timestamptz[], :finished_at::timestamptz[],
              :cancel_reason::text[], :progress::text[], :result::text[], :error::text[])
       as x(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at,
            timeout, unique_key, limits, details, reason, args, state, execution, worker, claimed_at, started_at,
            finished_at, cancel_reason, progress, result, error)),
-- include: taken
fresh as materialized (select * from item where id not in (select id from taken)),
back as (
  insert into tidemill.history(
    id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
    unique_key, limits, reason, args, state, execution, worker, claimed_at, started_at, finished_at, cancel_reason,
    progress, result, error, detailed)
  select
    id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
    unique_key, limits, reason, args, state, execution, worker, claimed_at, started_at, finished_at, cancel_reason,
    progress, result, error, detailed
  from fresh),
-- include: details_of(jobs=fresh)
select id from fresh

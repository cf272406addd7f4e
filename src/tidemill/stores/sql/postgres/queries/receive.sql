-- receive: inserts copies of another store's jobs, which wait; returns the ids that were not stored.
-- A job whose unique key is held is inserted without it. Locks the unique keys it takes, in key order like every other statement.
-- takes: now timestamptz, reason text
-- items: id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval, run_at timestamptz
-- items: created_at timestamptz, expires_at timestamptz, unique_key text, until_claimed bool, window_ends_at timestamptz
-- items: limits text, details text, args text
-- gives: id uuid
with item as materialized (
  select x.*, x.details is not null as detailed, false as tied
  from unnest(:id::uuid[], :tenant::text[], :queue::text[], :task::text[], :priority::smallint[], :max_attempts::int[],
              :timeout::interval[], :run_at::timestamptz[], :created_at::timestamptz[], :expires_at::timestamptz[],
              :unique_key::text[], :until_claimed::boolean[], :window_ends_at::timestamptz[], :limits::text[],
              :details::text[], :args::text[]) with ordinality
       as x(id, tenant, queue, task, priority, max_attempts, timeout, run_at, created_at, expires_at, unique_key,
            until_claimed, window_ends_at, limits, details, args, n)),
-- include: taken
fresh as materialized (select * from item where id not in (select id from taken)),
held as (
  insert into tidemill.uniques as u (tenant, key, job_id, live, window_ends_at)
  select distinct on (tenant collate "C", unique_key collate "C") tenant, unique_key, id, true, window_ends_at
  from fresh where unique_key is not null
  order by tenant collate "C", unique_key collate "C", n
  on conflict (tenant, key) do update
    set job_id = excluded.job_id, live = true, window_ends_at = excluded.window_ends_at
    where not u.live and (u.window_ends_at is null or u.window_ends_at <= coalesce(:now::timestamptz, now()))
  returning job_id),
parked as (
  insert into tidemill.parked(
    -- include: waiting_columns
    , reason, state, wakes)
  select
    -- include: job_columns
    , 0, 0, 0, run_at, case when id in (select job_id from held) then unique_key end,
    until_claimed and id in (select job_id from held), :reason, 'waiting', false
  from fresh),
-- include: details_of(jobs=fresh)
select id from fresh

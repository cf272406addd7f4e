-- enqueue: inserts a batch of jobs, all or none; returns the ids that were not inserted.
-- Locks the unique keys it takes, in key order like every other statement. `taken` finds ids that are already stored (then nothing
-- is inserted); `held` takes the free keys, the first one in a batch wins; a job whose key is held is left out.
-- Lines for jobs that are waiting initially are present only if the batch has one.
-- takes: now timestamptz
-- items: id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval, run_at timestamptz
-- items: delay interval, expires_at timestamptz, unique_key text, until_claimed bool, hold interval, limits text
-- items: details text, args text, waiting text, tied bool
-- gives: id uuid, taken bool
with item as materialized (
  select x.*, x.details is not null as detailed, coalesce(:now::timestamptz, now()) as created_at,
         coalesce(x.run_at, coalesce(:now::timestamptz, now()) + greatest(x.delay, interval '0')) as due_at
  from unnest(:id::uuid[], :tenant::text[], :queue::text[], :task::text[], :priority::smallint[], :max_attempts::int[],
              :timeout::interval[], :run_at::timestamptz[], :delay::interval[], :expires_at::timestamptz[],
              :unique_key::text[], :until_claimed::boolean[], :hold::interval[], :limits::text[], :details::text[],
              :args::text[]
              , :tied::boolean[]
              , :waiting::text[] -- when parks
       ) with ordinality
       as x(id, tenant, queue, task, priority, max_attempts, timeout, run_at, delay, expires_at, unique_key,
            until_claimed, hold, limits, details, args,
            tied,
            waiting, -- when parks
            n)),
-- include: taken
held as (
  insert into tidemill.uniques as u (tenant, key, job_id, live, window_ends_at)
  select distinct on (tenant collate "C", unique_key collate "C") tenant, unique_key, id, true, created_at + hold
  from item where unique_key is not null and not exists (select from taken)
  order by tenant collate "C", unique_key collate "C", n
  on conflict (tenant, key) do update
    set job_id = excluded.job_id, live = true, window_ends_at = excluded.window_ends_at
    where not u.live and (u.window_ends_at is null or u.window_ends_at <= coalesce(:now::timestamptz, now()))
  returning job_id),
fresh as materialized (
  select * from item
  where not exists (select from taken) and (unique_key is null or id in (select job_id from held))),
due as (
  insert into tidemill.ready(
    -- include: waiting_columns
    )
  select
    -- include: job_columns
    , 0, 0, 0, due_at, unique_key, until_claimed
  from fresh where due_at <= created_at
    and waiting is null -- when parks
  order by n),
later as (
  insert into tidemill.scheduled(
    -- include: waiting_columns
    )
  select
    -- include: job_columns
    , 0, 0, 0, due_at, unique_key, until_claimed
  from fresh where due_at > created_at
    and waiting is null -- when parks
  ),
parked as ( -- when parks
  insert into tidemill.parked( -- when parks
    -- include: waiting_columns -- when parks
    , reason, state, wakes) -- when parks
  select -- when parks
    -- include: job_columns -- when parks
    , 0, 0, 0, created_at, unique_key, until_claimed, waiting, 'waiting', false -- when parks
  from fresh where waiting is not null), -- when parks
-- include: details_of(jobs=fresh)
select id, true as taken from taken
union all
select id, false from (select id from item where not exists (select from taken) except select id from fresh) l

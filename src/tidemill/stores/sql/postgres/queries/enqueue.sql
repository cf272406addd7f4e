-- enqueue: inserts a batch of jobs, all or none; returns the ids that were not inserted.
-- Locks the unique keys it takes, in key order like every other statement. `taken` finds ids that are already stored (then nothing
-- is inserted); `held` takes the free keys, the first one in a batch wins; a job whose key is held is left out.
-- Lines for jobs that are waiting initially are present only if the batch has one.
-- takes: now timestamptz
-- items: id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval, run_at timestamptz
-- items: delay interval, expires_at timestamptz, unique_key text, until_claimed bool, hold interval, limits text
-- items: details text, args text, waiting text
-- gives: id uuid, taken bool
with item as materialized (
  select x.*, coalesce(:now::timestamptz, now()) as now,
         coalesce(x.run_at, coalesce(:now::timestamptz, now()) + greatest(x.delay, interval '0')) as due_at
  from unnest(:id::uuid[], :tenant::text[], :queue::text[], :task::text[], :priority::smallint[], :max_attempts::int[],
              :timeout::interval[], :run_at::timestamptz[], :delay::interval[], :expires_at::timestamptz[],
              :unique_key::text[], :until_claimed::boolean[], :hold::interval[], :limits::text[], :details::text[],
              :args::text[]
              , :waiting::text[] -- when parks
       ) with ordinality
       as x(id, tenant, queue, task, priority, max_attempts, timeout, run_at, delay, expires_at, unique_key,
            until_claimed, hold, limits, details, args,
            waiting, -- when parks
            n)),
taken as materialized (
  select x.id from item x
  where exists (select from tidemill.ready j where j.id = x.id offset 0)
     or exists (select from tidemill.scheduled j where j.id = x.id offset 0)
     or exists (select from tidemill.parked j where j.id = x.id offset 0)
     or exists (select from tidemill.running j where j.id = x.id offset 0)
     or exists (select from tidemill.history j where j.id = x.id offset 0)),
held as (
  insert into tidemill.uniques as u (tenant, key, job_id, live, window_ends_at)
  select distinct on (tenant collate "C", unique_key collate "C") tenant, unique_key, id, true, now + hold
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
  insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, unique_key, until_claimed, limits, detailed, args)
  select id, tenant, queue, task, priority, 0, max_attempts, 0, 0, due_at, now, expires_at, timeout, unique_key,
         until_claimed, limits, details is not null, args
  from fresh where due_at <= now
    and waiting is null -- when parks
  order by n),
later as (
  insert into tidemill.scheduled(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at,
                                 created_at, expires_at, timeout, unique_key, until_claimed, limits, detailed, args)
  select id, tenant, queue, task, priority, 0, max_attempts, 0, 0, due_at, now, expires_at, timeout, unique_key,
         until_claimed, limits, details is not null, args
  from fresh where due_at > now
    and waiting is null -- when parks
  ),
parked as ( -- when parks
  insert into tidemill.parked(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, -- when parks
                              created_at, expires_at, timeout, unique_key, until_claimed, limits, detailed, -- when parks
                              reason, args, state, wakes) -- when parks
  select id, tenant, queue, task, priority, 0, max_attempts, 0, 0, now, now, expires_at, timeout, unique_key, -- when parks
         until_claimed, limits, details is not null, waiting, args, 'waiting', false -- when parks
  from fresh where waiting is not null), -- when parks
described as (
  insert into tidemill.details(id, tenant, correlation_id, parent_id, reference_type, reference_id, tags, metadata, headers,
                               options, definition_id, definition_version, schedule_id, fire_at)
  select f.id, f.tenant, d.correlation_id, d.parent_id, d.reference_type, d.reference_id, d.tags, d.metadata, d.headers,
         d.options, d.definition_id, d.definition_version, d.schedule_id, d.fire_at
  from fresh f cross join lateral jsonb_to_record(f.details::jsonb)
       as d(correlation_id text, parent_id uuid, reference_type text, reference_id text, tags jsonb, metadata jsonb,
            headers jsonb, options jsonb, definition_id uuid, definition_version int, schedule_id uuid, fire_at timestamptz)
  where f.details is not null)
select id, true as taken from taken
union all
select id, false from (select id from item where not exists (select from taken) except select id from fresh) l

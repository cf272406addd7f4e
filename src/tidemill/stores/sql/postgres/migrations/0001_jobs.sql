-- expand: where jobs live. A job's row moves scheduled | ready | parked → running → history and is in one
-- of them at a time; nothing indexed is updated on the way. Names are text, so that every table can be read by eye.

create table tidemill.meta(
  key text primary key,
  value text not null);

create table tidemill.ready(
  id uuid primary key,
  seq bigint generated always as identity,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority smallint not null check (priority between -100 and 100),
  attempt int not null,
  max_attempts int not null,
  crashes int not null,
  token bigint not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  timeout interval,
  unique_key text,
  until_claimed boolean not null,
  limits text,
  detailed boolean not null,
  reason text,
  args text not null)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);
create index ready_claim on tidemill.ready(queue, tenant, priority desc, seq);

create table tidemill.scheduled(
  id uuid primary key,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority smallint not null check (priority between -100 and 100),
  attempt int not null,
  max_attempts int not null,
  crashes int not null,
  token bigint not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  timeout interval,
  unique_key text,
  until_claimed boolean not null,
  limits text,
  detailed boolean not null,
  reason text,
  args text not null)
  with (vacuum_truncate = off);
create index scheduled_due on tidemill.scheduled(run_at, id);

create table tidemill.parked(
  id uuid primary key,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority smallint not null check (priority between -100 and 100),
  attempt int not null,
  max_attempts int not null,
  crashes int not null,
  token bigint not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  timeout interval,
  unique_key text,
  until_claimed boolean not null,
  limits text,
  detailed boolean not null,
  reason text,
  args text not null,
  state text not null check (state in ('waiting', 'review_needed')),
  wakes boolean not null,
  result text);
create index parked_due on tidemill.parked(run_at, id) where wakes;
create index parked_state on tidemill.parked(state, id);

create table tidemill.running(
  id uuid primary key,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority smallint not null,
  attempt int not null check (attempt > 0),
  max_attempts int not null,
  crashes int not null,
  token bigint not null check (token > 0),
  run_at timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  timeout interval,
  unique_key text,
  limits text,
  detailed boolean not null,
  args text not null,
  state text not null check (state in ('claimed', 'running')),
  worker uuid not null,
  claimed_at timestamptz not null,
  started_at timestamptz check ((state = 'running') = (started_at is not null)),
  cancel_reason text,
  progress text)
  with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
create index running_worker on tidemill.running(worker);

create table tidemill.history(
  id uuid primary key,
  tenant text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority smallint not null,
  attempt int not null,
  max_attempts int not null,
  crashes int not null,
  token bigint not null,
  run_at timestamptz not null,
  created_at timestamptz not null,
  expires_at timestamptz,
  timeout interval,
  unique_key text,
  until_claimed boolean not null default false,
  limits text,
  detailed boolean not null,
  reason text,
  args text not null,
  state text not null check (state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')),
  execution text,
  worker uuid,
  claimed_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz not null,
  cancel_reason text,
  progress text,
  result text,
  error text)
  with (autovacuum_vacuum_insert_scale_factor = 0.1);
create index history_task on tidemill.history(task, id);
create index history_troubled on tidemill.history(state, id) where state <> 'completed';
create index history_finished on tidemill.history(finished_at, id);

create view tidemill.jobs as
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, 'pending'::text as state, null::text as execution,
         null::uuid as worker, null::timestamptz as claimed_at, null::timestamptz as started_at,
         null::timestamptz as finished_at, null::text as cancel_reason, null::text as progress, null::text as result,
         null::text as error
  from tidemill.ready
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, 'scheduled'::text, null::text, null::uuid, null::timestamptz,
         null::timestamptz, null::timestamptz, null::text, null::text, null::text, null::text
  from tidemill.scheduled
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, state, null::text, null::uuid, null::timestamptz,
         null::timestamptz, null::timestamptz, null::text, null::text, result, null::text
  from tidemill.parked
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, null::text, args, state, 'running'::text, worker, claimed_at, started_at,
         null::timestamptz, cancel_reason, progress, null::text, null::text
  from tidemill.running
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, state, execution, worker, claimed_at, started_at, finished_at,
         cancel_reason, progress, result, error
  from tidemill.history;

create table tidemill.details(
  id uuid primary key,
  tenant text collate "C" not null,
  correlation_id text,
  parent_id uuid,
  reference_type text,
  reference_id text,
  tags jsonb,
  metadata jsonb,
  headers jsonb,
  options jsonb,
  definition_id uuid,
  definition_version int,
  schedule_id uuid,
  fire_at timestamptz);
create index details_correlation on tidemill.details(correlation_id, id) where correlation_id is not null;
create index details_parent on tidemill.details(parent_id, id) where parent_id is not null;
create index details_reference on tidemill.details(reference_type, reference_id, id) where reference_type is not null;
create index details_tags on tidemill.details using gin(tags) where tags is not null;
create index details_definition on tidemill.details(definition_id, id) where definition_id is not null;

create table tidemill.uniques(
  tenant text collate "C" not null,
  key text collate "C" not null,
  job_id uuid not null,
  live boolean not null,
  window_ends_at timestamptz,
  primary key (tenant, key));
create index uniques_job on tidemill.uniques(job_id);

create table tidemill.executions(
  job_id uuid not null,
  number bigint not null,
  attempt int not null,
  state text not null
    check (state in ('succeeded', 'failed', 'timed_out', 'cancelled', 'crashed', 'released', 'suspended', 'review')),
  worker uuid,
  claimed_at timestamptz,
  started_at timestamptz,
  finished_at timestamptz not null,
  error text,
  reason text,
  primary key (job_id, number));

create table tidemill.logs(
  position bigint generated always as identity,
  job_id uuid not null,
  number bigint not null,
  at timestamptz not null,
  level text not null check (level in ('debug', 'info', 'warning', 'error')),
  stage text,
  message text not null,
  details text,
  duration interval,
  primary key (job_id, position));

create table tidemill.dependencies(
  job_id uuid not null,
  needs_id uuid not null,
  created_at timestamptz not null,
  primary key (job_id, needs_id));
create index dependencies_needs on tidemill.dependencies(needs_id);

create table tidemill.checkpoints(
  job_id uuid not null,
  name text not null,
  value text,
  created_at timestamptz not null,
  primary key (job_id, name));

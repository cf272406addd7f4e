-- expand: where jobs live. A job's row moves scheduled | ready | parked → running → history and is in one
-- of them at a time; nothing indexed is updated on the way. Names are text, so that every table can be read by eye.
--
-- Ids are 16 bytes, instants are microseconds since 1970 UTC, durations are microseconds, truth is 0 or 1, JSON is text.
-- Long texts stand at the end of a row, so that what is compared is read without them.

create table tidemill_meta(
  key text not null primary key,
  value text not null) strict;

create table tidemill_ready(
  seq integer primary key autoincrement,
  id blob not null unique,
  tenant text not null,
  queue text not null,
  task text not null,
  priority integer not null check (priority between -100 and 100),
  attempt integer not null,
  max_attempts integer not null,
  crashes integer not null,
  token integer not null,
  run_at integer not null,
  created_at integer not null,
  expires_at integer,
  timeout integer,
  unique_key text,
  until_claimed integer not null,
  limits text,
  detailed integer not null,
  reason text,
  args text not null) strict;
-- The row number, which is seq, ends every index.
create index tidemill_ready_claim on tidemill_ready(queue, tenant, priority desc);

create table tidemill_scheduled(
  id blob not null primary key,
  tenant text not null,
  queue text not null,
  task text not null,
  priority integer not null check (priority between -100 and 100),
  attempt integer not null,
  max_attempts integer not null,
  crashes integer not null,
  token integer not null,
  run_at integer not null,
  created_at integer not null,
  expires_at integer,
  timeout integer,
  unique_key text,
  until_claimed integer not null,
  limits text,
  detailed integer not null,
  reason text,
  args text not null) strict;
create index tidemill_scheduled_due on tidemill_scheduled(run_at, id);

create table tidemill_parked(
  id blob not null primary key,
  tenant text not null,
  queue text not null,
  task text not null,
  priority integer not null check (priority between -100 and 100),
  attempt integer not null,
  max_attempts integer not null,
  crashes integer not null,
  token integer not null,
  run_at integer not null,
  created_at integer not null,
  expires_at integer,
  timeout integer,
  unique_key text,
  until_claimed integer not null,
  limits text,
  detailed integer not null,
  reason text,
  state text not null check (state in ('waiting', 'review_needed')),
  wakes integer not null,
  args text not null,
  result text) strict;
create index tidemill_parked_due on tidemill_parked(run_at, id) where wakes;
create index tidemill_parked_state on tidemill_parked(state, id);

create table tidemill_running(
  id blob not null primary key,
  tenant text not null,
  queue text not null,
  task text not null,
  priority integer not null,
  attempt integer not null check (attempt > 0),
  max_attempts integer not null,
  crashes integer not null,
  token integer not null check (token > 0),
  run_at integer not null,
  created_at integer not null,
  expires_at integer,
  timeout integer,
  unique_key text,
  limits text,
  detailed integer not null,
  state text not null check (state in ('claimed', 'running')),
  worker blob not null,
  claimed_at integer not null,
  started_at integer check ((state = 'running') = (started_at is not null)),
  cancel_reason text,
  args text not null,
  progress text) strict;
create index tidemill_running_worker on tidemill_running(worker);

create table tidemill_history(
  id blob not null primary key,
  tenant text not null,
  queue text not null,
  task text not null,
  priority integer not null,
  attempt integer not null,
  max_attempts integer not null,
  crashes integer not null,
  token integer not null,
  run_at integer not null,
  created_at integer not null,
  expires_at integer,
  timeout integer,
  unique_key text,
  until_claimed integer not null default 0,
  limits text,
  detailed integer not null,
  reason text,
  state text not null check (state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')),
  execution text,
  worker blob,
  claimed_at integer,
  started_at integer,
  finished_at integer not null,
  cancel_reason text,
  args text not null,
  progress text,
  result text,
  error text) strict;
create index tidemill_history_task on tidemill_history(task, id);
create index tidemill_history_troubled on tidemill_history(id, state) where state <> 'completed';
create index tidemill_history_finished on tidemill_history(finished_at, id);

-- Every column has the same type in every part, literally: else SQLite gathers all parts before it looks at a condition.
-- What completed stands apart from what ended otherwise, so that either is passed over when only the other is asked for.
create view tidemill_jobs as
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, cast('pending' as text) as state,
         cast(null as text) as execution, cast(null as blob) as worker, cast(null as integer) as claimed_at,
         cast(null as integer) as started_at, cast(null as integer) as finished_at, cast(null as text) as cancel_reason,
         cast(null as text) as progress, cast(null as text) as result, cast(null as text) as error
  from tidemill_ready
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, cast('scheduled' as text),
         cast(null as text), cast(null as blob), cast(null as integer), cast(null as integer), cast(null as integer),
         cast(null as text), cast(null as text), cast(null as text), cast(null as text)
  from tidemill_scheduled
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, state,
         cast(null as text), cast(null as blob), cast(null as integer), cast(null as integer), cast(null as integer),
         cast(null as text), cast(null as text), result, cast(null as text)
  from tidemill_parked
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, cast(null as text), args, state,
         cast('running' as text), worker, claimed_at, started_at, cast(null as integer),
         cancel_reason, progress, cast(null as text), cast(null as text)
  from tidemill_running
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, cast('completed' as text),
         execution, worker, claimed_at, started_at, finished_at,
         cancel_reason, progress, result, error
  from tidemill_history where state = 'completed'
  union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, reason, args, state,
         execution, worker, claimed_at, started_at, finished_at,
         cancel_reason, progress, result, error
  from tidemill_history indexed by tidemill_history_troubled where state <> 'completed';

create table tidemill_details(
  id blob not null primary key,
  tenant text not null,
  correlation_id text,
  parent_id blob,
  reference_type text,
  reference_id text,
  tags text,
  metadata text,
  headers text,
  options text,
  definition_id blob,
  definition_version integer,
  schedule_id blob,
  fire_at integer) strict;
create index tidemill_details_correlation on tidemill_details(correlation_id, id) where correlation_id is not null;
create index tidemill_details_parent on tidemill_details(parent_id, id) where parent_id is not null;
create index tidemill_details_reference on tidemill_details(reference_type, reference_id, id)
  where reference_type is not null;
create index tidemill_details_tags on tidemill_details(tags, id) where tags is not null;
create index tidemill_details_definition on tidemill_details(definition_id, id) where definition_id is not null;

create table tidemill_uniques(
  tenant text not null,
  key text not null,
  job_id blob not null,
  live integer not null,
  window_ends_at integer,
  primary key (tenant, key)) strict, without rowid;
create index tidemill_uniques_job on tidemill_uniques(job_id);

create table tidemill_executions(
  job_id blob not null,
  number integer not null,
  attempt integer not null,
  state text not null
    check (state in ('succeeded', 'failed', 'timed_out', 'cancelled', 'crashed', 'released', 'suspended', 'review')),
  worker blob,
  claimed_at integer,
  started_at integer,
  finished_at integer not null,
  reason text,
  error text,
  primary key (job_id, number)) strict;

create table tidemill_logs(
  position integer primary key autoincrement,
  job_id blob not null,
  number integer not null,
  at integer not null,
  level text not null check (level in ('debug', 'info', 'warning', 'error')),
  stage text,
  message text not null,
  details text,
  duration integer) strict;
create index tidemill_logs_job on tidemill_logs(job_id);

create table tidemill_dependencies(
  job_id blob not null,
  needs_id blob not null,
  created_at integer not null,
  primary key (job_id, needs_id)) strict, without rowid;
create index tidemill_dependencies_needs on tidemill_dependencies(needs_id);

create table tidemill_checkpoints(
  job_id blob not null,
  name text not null,
  value text,
  created_at integer not null,
  primary key (job_id, name)) strict;

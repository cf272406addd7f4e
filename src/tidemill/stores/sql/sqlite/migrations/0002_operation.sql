-- expand: what jobs are made from, who works here, how the flow is controlled, what is kept.

-- What jobs are made from --------------------------------------------------------------------------------------------

create table tidemill_tasks(
  name text not null primary key,
  description text,
  owner text,
  schema text,
  settings text,
  enabled integer not null default 1,
  seen_at integer not null) strict;

create table tidemill_definitions(
  id blob not null primary key,
  tenant text not null,
  key text not null check (length(key) <= 200),
  name text not null check (length(name) <= 200),
  task text not null,
  version integer not null,
  args text not null,
  settings text,
  notifications text,
  owner text,
  enabled integer not null,
  created_at integer not null,
  created_by text,
  updated_at integer not null,
  deleted_at integer) strict;
create unique index tidemill_definitions_key on tidemill_definitions(tenant, key) where deleted_at is null;
create index tidemill_definitions_task on tidemill_definitions(tenant, task);

create table tidemill_definition_versions(
  definition_id blob not null references tidemill_definitions(id),
  version integer not null,
  body text not null,
  created_at integer not null,
  created_by text,
  primary key (definition_id, version)) strict;

create table tidemill_schedules(
  id blob not null primary key,
  tenant text not null,
  key text not null check (length(key) <= 200),
  definition_id blob references tidemill_definitions(id),
  task text not null,
  trigger text not null,
  timezone text not null,
  args text not null,
  options text,
  misfire text not null,
  overlap text not null,
  scope text not null check (scope in ('cluster', 'instance')),
  source text not null check (source in ('code', 'stored')),
  enabled integer not null,
  created_at integer not null,
  updated_at integer not null,
  last_fire_at integer,
  next_fire_at integer) strict;
create unique index tidemill_schedules_key on tidemill_schedules(tenant, key);
create index tidemill_schedules_due on tidemill_schedules(next_fire_at) where enabled;

create table tidemill_fires(
  schedule_id blob not null,
  fire_at integer not null,
  scope_key text not null,
  tenant text not null,
  job_id blob,
  outcome text not null check (outcome in ('fired', 'skipped')),
  reason text,
  created_at integer not null,
  primary key (schedule_id, fire_at, scope_key),
  check ((outcome = 'fired') = (job_id is not null))) strict, without rowid;

-- Who works here -----------------------------------------------------------------------------------------------------

create table tidemill_workers(
  id blob not null primary key,
  name text not null,
  host text not null,
  pid integer not null,
  node text not null,
  version text not null,
  queues text not null,
  tasks text not null,
  concurrency integer not null,
  state text not null check (state in ('active', 'draining', 'stopped')),
  started_at integer not null,
  beat_at integer not null,
  expires_at integer not null,
  beats integer not null) strict;

create table tidemill_leases(
  name text not null primary key,
  holder blob,
  term integer not null,
  acquired_at integer,
  beat_at integer,
  expires_at integer,
  metadata text not null,
  check ((holder is null) = (expires_at is null))) strict;

-- Flow control and operation -----------------------------------------------------------------------------------------

create table tidemill_limits(
  name text not null primary key,
  kind text not null check (kind in ('concurrency', 'rate', 'depth', 'breaker')),
  max integer not null,
  used integer not null,
  per integer,
  state text,
  changed_at integer not null) strict;

create table tidemill_settings(
  key text not null primary key,
  value text not null,
  description text,
  updated_at integer not null,
  updated_by text) strict;

create table tidemill_pauses(
  kind text not null check (kind in ('queue', 'task', 'tenant', 'all')),
  name text not null,
  reason text,
  paused_by text,
  paused_at integer not null,
  primary key (kind, name)) strict;

create table tidemill_keys(
  id text not null primary key,
  hash text not null,
  name text not null,
  role text not null check (role in ('viewer', 'operator', 'admin', 'super_admin')),
  tenant text not null,
  created_at integer not null,
  created_by text,
  expires_at integer,
  revoked_at integer) strict;

create table tidemill_audit(
  number integer primary key,
  at integer not null,
  tenant text not null,
  who text not null,
  action text not null,
  subject text not null,
  before text,
  after text,
  hash text not null) strict;

create trigger tidemill_audit_no_update before update on tidemill_audit
  begin select raise(abort, 'the audit is append-only'); end;
create trigger tidemill_audit_no_delete before delete on tidemill_audit
  begin select raise(abort, 'the audit is append-only'); end;
-- Without this a replacing insert would get past the other two: it removes rows without telling them.
create trigger tidemill_audit_no_replace before insert on tidemill_audit
  when exists (select 1 from tidemill_audit where number = new.number)
  begin select raise(abort, 'the audit is append-only'); end;

-- Archive ------------------------------------------------------------------------------------------------------------

create table tidemill_archive(
  id blob not null primary key,
  tenant text not null,
  task text not null,
  queue text not null,
  state text not null,
  token integer not null,
  created_at integer not null,
  finished_at integer not null,
  correlation_id text,
  parent_id blob,
  tier text not null,
  policy text not null,
  fingerprint text not null,
  archived_at integer not null,
  document text not null) strict;
create index tidemill_archive_ended on tidemill_archive(tier, finished_at, id);
create index tidemill_archive_task on tidemill_archive(task, id);
create index tidemill_archive_correlation on tidemill_archive(correlation_id, id) where correlation_id is not null;
create index tidemill_archive_parent on tidemill_archive(parent_id, id) where parent_id is not null;

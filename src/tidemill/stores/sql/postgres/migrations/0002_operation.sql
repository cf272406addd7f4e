-- expand: what jobs are made from, who works here, how the flow is controlled, what is kept.

-- What jobs are made from --------------------------------------------------------------------------------------------

create table tidemill.tasks(
  name text collate "C" primary key,
  description text,
  owner text,
  schema text,
  settings text,
  enabled boolean not null default true,
  seen_at timestamptz not null);

create table tidemill.definitions(
  id uuid primary key,
  tenant text collate "C" not null,
  key text not null check (length(key) <= 200),
  name text not null check (length(name) <= 200),
  task text collate "C" not null,
  version int not null,
  args text not null,
  settings text,
  notifications text,
  owner text,
  enabled boolean not null,
  created_at timestamptz not null,
  created_by text,
  updated_at timestamptz not null,
  deleted_at timestamptz);
create unique index definitions_key on tidemill.definitions(tenant, key) where deleted_at is null;
create index definitions_task on tidemill.definitions(tenant, task);

create table tidemill.definition_versions(
  definition_id uuid not null references tidemill.definitions(id),
  version int not null,
  body text not null,
  created_at timestamptz not null,
  created_by text,
  primary key (definition_id, version));

create table tidemill.schedules(
  id uuid primary key,
  tenant text collate "C" not null,
  key text not null check (length(key) <= 200),
  definition_id uuid references tidemill.definitions(id),
  task text collate "C" not null,
  trigger text not null,
  timezone text not null,
  args text not null,
  options text,
  misfire text not null,
  overlap text not null,
  scope text not null check (scope in ('cluster', 'instance')),
  source text not null check (source in ('code', 'stored')),
  enabled boolean not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  last_fire_at timestamptz,
  next_fire_at timestamptz);
create unique index schedules_key on tidemill.schedules(tenant, key);
create index schedules_due on tidemill.schedules(next_fire_at) where enabled;

create table tidemill.fires(
  schedule_id uuid not null,
  fire_at timestamptz not null,
  scope_key text not null,
  tenant text collate "C" not null,
  job_id uuid,
  outcome text not null check (outcome in ('fired', 'skipped')),
  reason text,
  created_at timestamptz not null,
  primary key (schedule_id, fire_at, scope_key),
  check ((outcome = 'fired') = (job_id is not null)));

-- Who works here -----------------------------------------------------------------------------------------------------

create table tidemill.workers(
  id uuid primary key,
  name text not null,
  host text not null,
  pid bigint not null,
  node text not null,
  version text not null,
  queues text not null,
  tasks text not null,
  concurrency int not null,
  state text not null check (state in ('active', 'draining', 'stopped')),
  started_at timestamptz not null,
  beat_at timestamptz not null,
  expires_at timestamptz not null,
  beats bigint not null)
  with (fillfactor = 50);

create table tidemill.leases(
  name text primary key,
  holder uuid,
  term bigint not null,
  acquired_at timestamptz,
  beat_at timestamptz,
  expires_at timestamptz,
  metadata text not null,
  check ((holder is null) = (expires_at is null)))
  with (fillfactor = 50);

-- Flow control and operation -----------------------------------------------------------------------------------------

create table tidemill.limits(
  name text primary key,
  kind text not null check (kind in ('concurrency', 'rate', 'depth', 'breaker')),
  max bigint not null,
  used bigint not null,
  per interval,
  state text,
  changed_at timestamptz not null)
  with (fillfactor = 20);

create table tidemill.settings(
  key text collate "C" primary key,
  value text not null,
  description text,
  updated_at timestamptz not null,
  updated_by text);

create table tidemill.pauses(
  kind text collate "C" not null check (kind in ('queue', 'task', 'tenant', 'all')),
  name text collate "C" not null,
  reason text,
  paused_by text,
  paused_at timestamptz not null,
  primary key (kind, name));

create table tidemill.keys(
  id text primary key,
  hash text not null,
  name text not null,
  role text not null check (role in ('viewer', 'operator', 'admin', 'super_admin')),
  tenant text collate "C" not null,
  created_at timestamptz not null,
  created_by text,
  expires_at timestamptz,
  revoked_at timestamptz);

create table tidemill.audit(
  number bigint primary key,
  at timestamptz not null,
  tenant text collate "C" not null,
  who text not null,
  action text not null,
  subject text not null,
  before text,
  after text,
  hash text not null);

create function tidemill.refuse_change() returns trigger language plpgsql as
  $$ begin raise exception 'the audit is append-only' using errcode = 'integrity_constraint_violation'; end $$;
create trigger audit_append_only before update or delete on tidemill.audit
  for each row execute function tidemill.refuse_change();
create trigger audit_no_truncate before truncate on tidemill.audit
  for each statement execute function tidemill.refuse_change();

-- Archive ------------------------------------------------------------------------------------------------------------

create table tidemill.archive(
  id uuid primary key,
  tenant text collate "C" not null,
  task text collate "C" not null,
  queue text collate "C" not null,
  state text not null,
  token bigint not null,
  created_at timestamptz not null,
  finished_at timestamptz not null,
  correlation_id text,
  parent_id uuid,
  tier text not null,
  policy text not null,
  document text not null,
  fingerprint text not null,
  archived_at timestamptz not null);
create index archive_ended on tidemill.archive(tier, finished_at);
create index archive_task on tidemill.archive(task, id);
create index archive_correlation on tidemill.archive(correlation_id, id) where correlation_id is not null;
create index archive_parent on tidemill.archive(parent_id, id) where parent_id is not null;

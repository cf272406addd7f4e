-- expand: edges between jobs, the joins that count their ends, and groups of jobs.
-- serves: 6

alter table tidemill_ready add column tied integer not null default 0;
alter table tidemill_scheduled add column tied integer not null default 0;
alter table tidemill_parked add column tied integer not null default 0;
alter table tidemill_running add column tied integer not null default 0;
alter table tidemill_history add column tied integer not null default 0;

alter table tidemill_details add column flow_id blob;
alter table tidemill_details add column node text;
alter table tidemill_details add column position integer;
alter table tidemill_details add column group_id blob;
alter table tidemill_details add column group_shard integer;
alter table tidemill_details add column may_fail integer not null default 0;
create index if not exists tidemill_details_flow on tidemill_details(flow_id, id) where flow_id is not null;
create index if not exists tidemill_details_group on tidemill_details(group_id, position, id) where group_id is not null;

alter table tidemill_dependencies add column condition text not null default 'success'
  check (condition in ('success', 'failure', 'not_success', 'end', 'first_failure'));
alter table tidemill_dependencies add column shard integer not null default 0;

-- The id is that of a waiting job or of a group.
create table if not exists tidemill_joins(
  id blob not null,
  shard integer not null,
  remaining integer not null,
  spare integer not null,
  bad integer not null default 0,
  total integer not null,
  required integer not null,
  primary key (id, shard)) strict, without rowid;

create table if not exists tidemill_flows(
  id blob not null primary key,
  tenant text not null,
  kind text not null check (kind in ('flow', 'map', 'batch')),
  name text not null,
  key text,
  state text not null check (state in ('running', 'completed', 'failed', 'cancelled')),
  group_id blob,
  group_shard integer not null default 0,
  rules text not null,
  created_at integer not null,
  created_by text,
  expires_at integer,
  ended_at integer check ((state = 'running') = (ended_at is null)),
  cancel_reason text,
  stops integer not null default 0,
  round integer not null default 1,
  held integer not null default 0,
  correlation_id text) strict;
create unique index if not exists tidemill_flows_key on tidemill_flows(tenant, name, key) where key is not null;
create index if not exists tidemill_flows_live on tidemill_flows(id) where ended_at is null;
create index if not exists tidemill_flows_ended on tidemill_flows(ended_at, id) where ended_at is not null;
create index if not exists tidemill_flows_group on tidemill_flows(group_id) where group_id is not null;

create table if not exists tidemill_unreachable_jobs(
  job_id blob not null primary key,
  reason text not null,
  created_at integer not null) strict;

-- The schema version that a worker was written for; 0: it does not count ends.
alter table tidemill_workers add column schema_version integer not null default 0;

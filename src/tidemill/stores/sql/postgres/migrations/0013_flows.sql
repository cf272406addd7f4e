-- expand: edges between jobs, the joins that count their ends, and groups of jobs.
-- serves: 6

alter table tidemill.ready add column if not exists tied boolean not null default false;
alter table tidemill.scheduled add column if not exists tied boolean not null default false;
alter table tidemill.parked add column if not exists tied boolean not null default false;
alter table tidemill.running add column if not exists tied boolean not null default false;
alter table tidemill.history add column if not exists tied boolean not null default false;

alter table tidemill.details
  add column if not exists flow_id uuid,
  add column if not exists node text,
  add column if not exists position int,
  add column if not exists group_id uuid,
  add column if not exists group_shard smallint,
  add column if not exists may_fail boolean not null default false;
create index if not exists details_flow on tidemill.details(flow_id, id) where flow_id is not null;
create index if not exists details_group on tidemill.details(group_id, position, id) where group_id is not null;

alter table tidemill.dependencies
  add column if not exists condition text not null default 'success'
    check (condition in ('success', 'failure', 'not_success', 'end', 'first_failure')),
  add column if not exists shard smallint not null default 0;

-- The id is that of a waiting job or of a group. Half-empty pages let updates stay in place; there is no other index.
create table if not exists tidemill.joins(
  id uuid not null,
  shard smallint not null,
  remaining int not null,
  spare int not null,
  bad int not null default 0,
  total int not null,
  required int not null,
  primary key (id, shard)) with (fillfactor = 50);

create table if not exists tidemill.flows(
  id uuid primary key,
  tenant text collate "C" not null,
  kind text not null check (kind in ('flow', 'map', 'batch')),
  name text collate "C" not null,
  key text collate "C",
  state text not null check (state in ('running', 'completed', 'failed', 'cancelled')),
  group_id uuid,
  group_shard smallint not null default 0,
  rules jsonb not null,
  created_at timestamptz not null,
  created_by text,
  expires_at timestamptz,
  ended_at timestamptz check ((state = 'running') = (ended_at is null)),
  cancel_reason text,
  stops boolean not null default false,
  round int not null default 1,
  held int not null default 0,
  correlation_id text);
create unique index if not exists flows_key on tidemill.flows(tenant, name, key) where key is not null;
create index if not exists flows_live on tidemill.flows(id) where ended_at is null;
create index if not exists flows_ended on tidemill.flows(ended_at, id) where ended_at is not null;
create index if not exists flows_group on tidemill.flows(group_id) where group_id is not null;

create table if not exists tidemill.unreachable_jobs(
  job_id uuid primary key,
  reason text not null,
  created_at timestamptz not null);

-- The schema version that a worker was written for; 0: it does not count ends.
alter table tidemill.workers add column if not exists schema_version int not null default 0;

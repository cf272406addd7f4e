-- expand: signals to jobs, events, and what suspended jobs wait for.
-- serves: 6

create table if not exists tidemill.signals(
  position bigint generated always as identity,
  job_id uuid not null,
  tenant text collate "C" not null,
  name text collate "C" not null,
  payload text,
  key text collate "C",
  source text,
  created_at timestamptz not null,
  taken_at timestamptz check (taken_at is null or key is not null),
  primary key (job_id, position));
create unique index if not exists signals_key on tidemill.signals(job_id, key) where key is not null;
create index if not exists signals_unread on tidemill.signals(job_id, position) where taken_at is null;
create index if not exists signals_created on tidemill.signals(created_at) where taken_at is null;

create table if not exists tidemill.waits(
  job_id uuid not null,
  name text collate "C" not null,
  match text collate "C" not null default '',
  event boolean not null,
  tenant text collate "C" not null,
  since_at timestamptz not null,
  token bigint not null,
  primary key (job_id, event, name, match));
create index if not exists waits_event on tidemill.waits(tenant, name, match) where event;
create index if not exists waits_question on tidemill.waits(tenant, job_id) where name >= 'ask/' and name < 'ask0';

create table if not exists tidemill.events(
  id uuid primary key,
  tenant text collate "C" not null,
  name text collate "C" not null,
  match text collate "C" not null default '',
  payload text,
  source text,
  created_at timestamptz not null);
create index if not exists events_match on tidemill.events(tenant, name, match, created_at, id);
create index if not exists events_name on tidemill.events(tenant, name, created_at, id);
create index if not exists events_created on tidemill.events(created_at, id);

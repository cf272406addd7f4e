-- expand: signals to jobs, events, and what suspended jobs wait for.
-- serves: 6

create table if not exists tidemill_signals(
  position integer primary key autoincrement,
  job_id blob not null,
  tenant text not null,
  name text not null,
  payload text,
  key text,
  source text,
  created_at integer not null,
  taken_at integer check (taken_at is null or key is not null)) strict;
create unique index if not exists tidemill_signals_key on tidemill_signals(job_id, key) where key is not null;
create index if not exists tidemill_signals_unread on tidemill_signals(job_id, position) where taken_at is null;
create index if not exists tidemill_signals_created on tidemill_signals(created_at) where taken_at is null;

create table if not exists tidemill_waits(
  job_id blob not null,
  name text not null,
  match text not null default '',
  event integer not null,
  tenant text not null,
  since_at integer not null,
  token integer not null,
  primary key (job_id, event, name, match)) strict, without rowid;
create index if not exists tidemill_waits_event on tidemill_waits(tenant, name, match) where event;
create index if not exists tidemill_waits_question on tidemill_waits(tenant, job_id) where name >= 'ask/' and name < 'ask0';

create table if not exists tidemill_events(
  id blob primary key not null,
  tenant text not null,
  name text not null,
  match text not null default '',
  payload text,
  source text,
  created_at integer not null) strict;
create index if not exists tidemill_events_match on tidemill_events(tenant, name, match, created_at, id);
create index if not exists tidemill_events_name on tidemill_events(tenant, name, created_at, id);
create index if not exists tidemill_events_created on tidemill_events(created_at, id);

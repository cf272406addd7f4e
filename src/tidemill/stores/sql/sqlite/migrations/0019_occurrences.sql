-- expand: schedules that run after definitions or on events, and what they have not used yet.
-- serves: 6

create table if not exists tidemill_trigger_sources(
  schedule_id blob not null references tidemill_schedules(id) on delete cascade deferrable initially deferred,
  tenant text not null,
  kind text not null check (kind in ('definition', 'event')),
  name text not null,
  primary key (schedule_id, kind, name)) strict, without rowid;
create index if not exists tidemill_trigger_sources_name on tidemill_trigger_sources(tenant, kind, name);

create table if not exists tidemill_occurrences(
  schedule_id blob not null references tidemill_schedules(id) on delete cascade deferrable initially deferred,
  id blob not null,
  source text not null,
  occurred_at integer not null,
  outcome text not null default '',
  match text not null default '',
  payload text,
  primary key (schedule_id, id)) strict, without rowid;
create index if not exists tidemill_occurrences_id on tidemill_occurrences(id);

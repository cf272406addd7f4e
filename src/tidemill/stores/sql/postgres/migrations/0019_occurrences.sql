-- expand: schedules that run after definitions or on events, and what they have not used yet.
-- serves: 6

create table if not exists tidemill.trigger_sources(
  schedule_id uuid not null references tidemill.schedules(id) on delete cascade deferrable initially deferred,
  tenant text collate "C" not null,
  kind text collate "C" not null check (kind in ('definition', 'event')),
  name text collate "C" not null,
  primary key (schedule_id, kind, name));
create index if not exists trigger_sources_name on tidemill.trigger_sources(tenant, kind, name);

create table if not exists tidemill.occurrences(
  schedule_id uuid not null references tidemill.schedules(id) on delete cascade deferrable initially deferred,
  id uuid not null,
  source text collate "C" not null,
  occurred_at timestamptz not null,
  outcome text not null default '',
  match text collate "C" not null default '',
  payload text,
  primary key (schedule_id, id));
create index if not exists occurrences_id on tidemill.occurrences(id);

-- expand: an index that finds the jobs of a schedule; schedules that fire in every runner process.
-- serves: 6

create index if not exists tidemill_details_schedule on tidemill_details(schedule_id, id) where schedule_id is not null;

-- SQLite cannot change a CHECK in place, so the rows move into a new table.
create table tidemill_schedules_new(
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
  scope text not null check (scope in ('cluster', 'instance', 'process')),
  source text not null check (source in ('code', 'stored')),
  enabled integer not null,
  created_at integer not null,
  updated_at integer not null,
  last_fire_at integer,
  next_fire_at integer,
  revision integer not null default 1,
  since_at integer,
  calendar text,
  exclude text,
  note text) strict;
insert into tidemill_schedules_new(id, tenant, key, definition_id, task, trigger, timezone, args, options, misfire, overlap, scope,
                                   source, enabled, created_at, updated_at, last_fire_at, next_fire_at, revision, since_at,
                                   calendar, exclude, note)
select id, tenant, key, definition_id, task, trigger, timezone, args, options, misfire, overlap, scope, source, enabled,
       created_at, updated_at, last_fire_at, next_fire_at, revision, since_at, calendar, exclude, note
from tidemill_schedules;
drop table tidemill_schedules;
alter table tidemill_schedules_new rename to tidemill_schedules;
create unique index tidemill_schedules_key on tidemill_schedules(tenant, key);
create index tidemill_schedules_due on tidemill_schedules(next_fire_at, id) where enabled and scope = 'cluster';
create index tidemill_schedules_definition on tidemill_schedules(definition_id) where definition_id is not null;

-- expand: schedules with revisions and the rest of their rules; indexes for fires, and for jobs that may expire.

alter table tidemill_schedules add column revision integer not null default 1;
alter table tidemill_schedules add column since_at integer;
alter table tidemill_schedules add column calendar text;
alter table tidemill_schedules add column exclude text;
alter table tidemill_schedules add column note text;
-- In order to the last, and without what no leader looks at. Nothing has used the one before.
drop index tidemill_schedules_due;
create index tidemill_schedules_due on tidemill_schedules(next_fire_at, id) where enabled and scope = 'cluster';
create index tidemill_schedules_definition on tidemill_schedules(definition_id) where definition_id is not null;

create index tidemill_fires_jobs on tidemill_fires(schedule_id, fire_at, scope_key) where job_id is not null;
create index tidemill_fires_nodes on tidemill_fires(schedule_id, scope_key, fire_at) where scope_key <> '';
create index tidemill_fires_old on tidemill_fires(fire_at);

-- A job that never expires is in none of these.
create index tidemill_ready_expires on tidemill_ready(expires_at, id) where expires_at is not null;
create index tidemill_scheduled_expires on tidemill_scheduled(expires_at, id) where expires_at is not null;
create index tidemill_parked_expires on tidemill_parked(expires_at, id)
  where expires_at is not null and state = 'waiting';

-- expand: schedules with revisions and the rest of their rules; indexes for fires, and for jobs that may expire.

alter table tidemill.schedules
  add column revision int not null default 1,
  add column since_at timestamptz,
  add column calendar text,
  add column exclude text,
  add column note text;
-- In order to the last, and without what no leader looks at. Nothing has used the one before.
drop index tidemill.schedules_due;
create index schedules_due on tidemill.schedules(next_fire_at, id) where enabled and scope = 'cluster';
create index schedules_definition on tidemill.schedules(definition_id) where definition_id is not null;

create index fires_jobs on tidemill.fires(schedule_id, fire_at, scope_key collate "C") where job_id is not null;
create index fires_nodes on tidemill.fires(schedule_id, scope_key, fire_at) where scope_key <> '';
create index fires_old on tidemill.fires(fire_at);

-- A job that never expires is in none of these.
create index ready_expires on tidemill.ready(expires_at, id) where expires_at is not null;
create index scheduled_expires on tidemill.scheduled(expires_at, id) where expires_at is not null;
create index parked_expires on tidemill.parked(expires_at, id) where expires_at is not null and state = 'waiting';

-- expand: an index that finds the jobs of a schedule; schedules that fire in every runner process.
-- serves: 6

create index if not exists details_schedule on tidemill.details(schedule_id, id) where schedule_id is not null;

alter table tidemill.schedules
  drop constraint schedules_scope_check,
  add constraint schedules_scope_check check (scope in ('cluster', 'instance', 'process'));

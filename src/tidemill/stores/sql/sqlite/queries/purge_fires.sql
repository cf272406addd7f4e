-- purge_fires: deletes fires before an instant, the oldest first, except the newest of each scope key of an existing schedule.
-- A runner process does not outlive its scope key, so the newest fire of a runner is deleted too.
-- Index: fires_old, and fires' primary key to find newer ones.
-- takes: before timestamptz, limit int4
-- gives: schedule_id uuid
delete from tidemill_fires where (schedule_id, fire_at, scope_key) in (
  select f.schedule_id, f.fire_at, f.scope_key from tidemill_fires f indexed by tidemill_fires_old
  where f.fire_at < :before
    and (f.scope_key glob '*/????????-????-????-????-????????????*'
         or exists (select 1 from tidemill_fires n
                 where n.schedule_id = f.schedule_id and n.scope_key = f.scope_key and n.fire_at > f.fire_at)
         or not exists (select 1 from tidemill_schedules s where s.id = f.schedule_id))
  order by f.fire_at, f.schedule_id, f.scope_key limit max(:limit, 0))
returning schedule_id

-- purge_fires: deletes fires before an instant, the oldest first, except the newest of each scope key of an existing schedule.
-- A runner process does not outlive its scope key, so the newest fire of a runner is deleted too.
-- Index: fires_old, and fires' primary key to find newer ones.
-- takes: before timestamptz, limit int4
-- gives: schedule_id uuid
delete from tidemill.fires where ctid = any(array(
  select f.ctid from tidemill.fires f
  where f.fire_at < :before
    and (f.scope_key like '%/________-____-____-____-____________%'
         or exists (select from tidemill.fires n
                 where n.schedule_id = f.schedule_id and n.scope_key = f.scope_key and n.fire_at > f.fire_at)
         or (select true from tidemill.schedules s where s.id = f.schedule_id) is null)
  order by f.fire_at, f.schedule_id, f.scope_key limit :limit for update skip locked))
returning schedule_id

-- purge_fires: removes fires before then, the oldest first, but for the newest of each scope key of a schedule that is there.
-- Index: fires_old, and for what is newer fires' primary key.
-- takes: before timestamptz, limit int4
-- gives: schedule_id uuid
delete from tidemill.fires where ctid = any(array(
  select f.ctid from tidemill.fires f
  where f.fire_at < :before
    and (exists (select from tidemill.fires n
                 where n.schedule_id = f.schedule_id and n.scope_key = f.scope_key and n.fire_at > f.fire_at)
         or (select true from tidemill.schedules s where s.id = f.schedule_id) is null)
  order by f.fire_at, f.schedule_id, f.scope_key limit :limit for update skip locked))
returning schedule_id

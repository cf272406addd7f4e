-- put_schedules: writes schedules, each over the revision that it names (0: a new one); returns the lost ids.
-- Keys are judged as before the batch: the first one to name a free key gets it. Collects the batch in a temporary table.
-- Indexes: schedules' primary key, schedules_key.
-- takes: now timestamptz
-- items: id uuid, tenant text, key text, definition_id uuid, task text, trigger text, timezone text, calendar text, exclude text
-- items: args text, options text, misfire text, overlap text, scope text, source text, enabled bool, note text, revision int4
-- items: next_fire_at timestamptz
-- gives: id uuid
delete from temp.tidemill_item_schedule
;
insert into temp.tidemill_item_schedule(id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options,
                                        misfire, overlap, scope, source, enabled, note, revision, next_fire_at)
values (:id, :tenant, :key, :definition_id, :task, :trigger, :timezone, :calendar, :exclude, :args, :options,
        :misfire, :overlap, :scope, :source, :enabled, :note, :revision, :next_fire_at)
;
delete from temp.tidemill_fit
;
insert into temp.tidemill_fit(id)
select id from (
  select x.id, row_number() over (partition by x.tenant, x.key order by x.n) as turn
  from temp.tidemill_item_schedule x left join tidemill_schedules s on s.id = x.id
  where coalesce(s.revision, 0) = x.revision and coalesce(s.tenant, x.tenant) = x.tenant
    and (x.definition_id is null
         or exists (select 1 from tidemill_definitions d
                    where d.id = x.definition_id and d.tenant = x.tenant and d.deleted_at is null))
    and not exists (select 1 from tidemill_schedules o where o.tenant = x.tenant and o.key = x.key and o.id <> x.id))
where turn = 1
;
update tidemill_schedules as s
set key = x.key, definition_id = x.definition_id, task = x.task, trigger = x.trigger, timezone = x.timezone,
    calendar = x.calendar, exclude = x.exclude, args = x.args, options = x.options, misfire = x.misfire, overlap = x.overlap,
    scope = x.scope, source = x.source, enabled = x.enabled, note = x.note, revision = s.revision + 1, updated_at = :now,
    since_at = :now, next_fire_at = x.next_fire_at
from temp.tidemill_item_schedule x
where s.id = x.id and x.revision > 0 and x.id in (select id from temp.tidemill_fit)
;
insert into tidemill_schedules(id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options,
                               misfire, overlap, scope, source, enabled, note, revision, created_at, updated_at, since_at,
                               next_fire_at)
select id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options, misfire, overlap, scope,
       source, enabled, note, 1, :now, :now, :now, next_fire_at
from temp.tidemill_item_schedule where revision = 0 and id in (select id from temp.tidemill_fit)
;
select id from temp.tidemill_item_schedule where id not in (select id from temp.tidemill_fit)

-- due: schedules of cluster scope that are due, the longest due first, and the next fire of the others.
-- That instant is in every row, and in a row without a schedule if none is due. Definitions are looked up one by one: `exists`
-- would be hashed, which reads all of them.
-- Indexes: schedules_due, definitions' primary key.
-- takes: now timestamptz, limit int4
-- gives: following timestamptz, id uuid, tenant text, key text, definition_id uuid, task text, trigger text, timezone text
-- gives: calendar text, exclude text, args text, options text, misfire text, overlap text, scope text, source text, enabled bool
-- gives: note text, revision int4, created_at timestamptz, updated_at timestamptz, since_at timestamptz
-- gives: last_fire_at timestamptz, next_fire_at timestamptz
with due as materialized (
  select s.* from tidemill.schedules s
  where s.enabled and s.scope = 'cluster' and s.next_fire_at <= coalesce(:now::timestamptz, now())
    and coalesce((select d.enabled and d.deleted_at is null from tidemill.definitions d where d.id = s.definition_id),
                 s.definition_id is null)
  order by s.next_fire_at, s.id limit :limit),
rest as (
  select s.next_fire_at from tidemill.schedules s
  where s.enabled and s.scope = 'cluster' and s.next_fire_at is not null
    and coalesce((select d.enabled and d.deleted_at is null from tidemill.definitions d where d.id = s.definition_id),
                 s.definition_id is null)
  order by s.next_fire_at, s.id limit 1 offset (select count(*) from due))
select n.following,
       d.id, d.tenant, d.key, d.definition_id, d.task, d.trigger, d.timezone, d.calendar, d.exclude, d.args, d.options,
       d.misfire, d.overlap, d.scope, d.source, d.enabled, d.note, d.revision, d.created_at, d.updated_at, d.since_at,
       d.last_fire_at, d.next_fire_at
from (select (select next_fire_at from rest) as following) n left join due d on true
order by d.next_fire_at, d.id

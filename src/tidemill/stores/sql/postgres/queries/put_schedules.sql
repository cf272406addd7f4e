-- put_schedules: writes schedules, each over the revision that it names (0: a new one); returns the lost ids.
-- Keys are judged as before the batch: the first one to name a free key gets it. Locks the named definitions, so that they are not
-- dropped at the same time, then the schedules in order. Indexes: schedules' primary key, schedules_key.
-- takes: now timestamptz
-- items: id uuid, tenant text, key text, definition_id uuid, task text, trigger text, timezone text, calendar text, exclude text
-- items: args text, options text, misfire text, overlap text, scope text, source text, enabled bool, note text, revision int4
-- items: next_fire_at timestamptz
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :tenant::text[], :key::text[], :definition_id::uuid[], :task::text[], :trigger::text[],
                       :timezone::text[], :calendar::text[], :exclude::text[], :args::text[], :options::text[], :misfire::text[],
                       :overlap::text[], :scope::text[], :source::text[], :enabled::boolean[], :note::text[], :revision::int[],
                       :next_fire_at::timestamptz[]) with ordinality
    as x(id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options, misfire, overlap, scope,
         source, enabled, note, revision, next_fire_at, n)),
owner as materialized (
  select d.id, d.tenant, d.deleted_at is null as lives from tidemill.definitions d
  where d.id = any(array(select definition_id from item))
  order by d.id for share),
locked as materialized (
  select s.id from tidemill.schedules s where s.id = any(:id::uuid[]) order by s.id for no key update),
fit as materialized (
  select distinct on (x.tenant, x.key) x.*, coalesce(:now::timestamptz, now()) as now
  from item x left join tidemill.schedules s on s.id = x.id
  where coalesce(s.revision, 0) = x.revision and coalesce(s.tenant, x.tenant) = x.tenant
    and (x.definition_id is null
         or exists (select from owner o where o.id = x.definition_id and o.tenant = x.tenant and o.lives))
    and not exists (select from tidemill.schedules o where o.tenant = x.tenant and o.key = x.key and o.id <> x.id)
  order by x.tenant, x.key, x.n),
changed as (
  update tidemill.schedules s
  set key = x.key, definition_id = x.definition_id, task = x.task, trigger = x.trigger, timezone = x.timezone,
      calendar = x.calendar, exclude = x.exclude, args = x.args, options = x.options, misfire = x.misfire, overlap = x.overlap,
      scope = x.scope, source = x.source, enabled = x.enabled, note = x.note, revision = s.revision + 1, updated_at = x.now,
      since_at = x.now, next_fire_at = x.next_fire_at
  from fit x where s.id = x.id and s.id = any(array(select id from locked)) and s.revision = x.revision
  returning s.id),
added as (
  insert into tidemill.schedules(id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options,
                                 misfire, overlap, scope, source, enabled, note, revision, created_at, updated_at, since_at,
                                 next_fire_at)
  select id, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options, misfire, overlap, scope,
         source, enabled, note, 1, now, now, now, next_fire_at
  from fit where revision = 0 order by tenant, key
  on conflict do nothing
  returning id)
select id from item except (select id from changed union all select id from added)

-- put_definition: writes a new definition, or over the version that is named; returns what was written.
-- A key of another existing definition is not taken. Indexes: definitions' primary key, definitions_key.
-- takes: now timestamptz, id uuid, tenant text, key text, name text, task text, version int4, args text, settings text
-- takes: notifications text, owner text, enabled bool, by text
-- gives: id uuid, tenant text, key text, name text, task text, version int4, args text, settings text, notifications text
-- gives: owner text, enabled bool, created_at timestamptz, created_by text, updated_at timestamptz, deleted_at timestamptz
with changed as (
  update tidemill.definitions d
  set key = :key, name = :name, task = :task, version = d.version + 1, args = :args, settings = :settings,
      notifications = :notifications, owner = :owner, updated_at = coalesce(:now::timestamptz, now())
  where :version::int > 0 and d.id = :id::uuid and d.tenant = :tenant and d.version = :version::int and d.deleted_at is null
    and not exists (select from tidemill.definitions o
                    where o.tenant = :tenant and o.key = :key and o.deleted_at is null and o.id <> :id::uuid)
  returning *),
added as (
  insert into tidemill.definitions(id, tenant, key, name, task, version, args, settings, notifications, owner, enabled,
                                   created_at, created_by, updated_at)
  select :id::uuid, :tenant, :key, :name, :task, 1, :args, :settings, :notifications, :owner, :enabled::boolean,
         coalesce(:now::timestamptz, now()), :by, coalesce(:now::timestamptz, now())
  where :version::int = 0
  on conflict do nothing
  returning *)
select id, tenant, key, name, task, version, args, settings, notifications, owner, enabled, created_at, created_by, updated_at,
       deleted_at
from (select * from changed union all select * from added) written

-- put_definition: writes a new definition, or over the version that is named; returns what was written.
-- A key of another existing definition is not taken. Indexes: definitions' primary key, definitions_key.
-- takes: now timestamptz, id uuid, tenant text, key text, name text, task text, version int4, args text, settings text
-- takes: notifications text, owner text, enabled bool, by text
-- gives: id uuid, tenant text, key text, name text, task text, version int4, args text, settings text, notifications text
-- gives: owner text, enabled bool, created_at timestamptz, created_by text, updated_at timestamptz, deleted_at timestamptz
delete from temp.tidemill_fit
;
insert into temp.tidemill_fit(id)
select :id
where (exists (select 1 from tidemill_definitions d
               where d.id = :id and d.tenant = :tenant and d.version = :version and d.deleted_at is null)
       or (:version = 0 and not exists (select 1 from tidemill_definitions d where d.id = :id)))
  and not exists (select 1 from tidemill_definitions o
                  where o.tenant = :tenant and o.key = :key and o.deleted_at is null and o.id <> :id)
;
update tidemill_definitions
set key = :key, name = :name, task = :task, version = version + 1, args = :args, settings = :settings,
    notifications = :notifications, owner = :owner, updated_at = :now
where id in (select id from temp.tidemill_fit)
;
insert into tidemill_definitions(id, tenant, key, name, task, version, args, settings, notifications, owner, enabled, created_at,
                                 created_by, updated_at)
select id, :tenant, :key, :name, :task, 1, :args, :settings, :notifications, :owner, :enabled, :now, :by, :now
from temp.tidemill_fit where :version = 0
;
select id, tenant, key, name, task, version, args, settings, notifications, owner, enabled, created_at, created_by, updated_at,
       deleted_at
from tidemill_definitions where id in (select id from temp.tidemill_fit)

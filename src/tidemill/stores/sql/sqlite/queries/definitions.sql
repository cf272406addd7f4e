-- definitions: the matching definitions, by tenant and key, existing ones before deleted ones, the latest deletion first.
-- takes: tenant text, ids uuids, keys texts, task text
-- gives: id uuid, tenant text, key text, name text, task text, version int4, args text, settings text, notifications text
-- gives: owner text, enabled bool, created_at timestamptz, created_by text, updated_at timestamptz, deleted_at timestamptz
select id, tenant, key, name, task, version, args, settings, notifications, owner, enabled, created_at, created_by, updated_at,
       deleted_at
from tidemill_definitions
where true
  and tenant = :tenant -- when tenant
  and id in (select unhex(value) from json_each(:ids)) -- when ids
  and key in (select value from json_each(:keys)) -- when keys
  and task = :task -- when task
  and deleted_at is null -- when living
order by tenant, key, deleted_at desc nulls first, id

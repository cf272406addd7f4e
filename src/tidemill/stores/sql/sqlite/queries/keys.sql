-- keys: all keys, or those with these ids, by creation and id.
-- takes: ids texts
-- gives: id text, name text, role text, tenant text, hash text, created_at timestamptz, created_by text, expires_at timestamptz
-- gives: revoked_at timestamptz, max_priority int2, grant_json text
select id, name, role, tenant, hash, created_at, created_by, expires_at, revoked_at, max_priority, grant_json
from tidemill_keys
where true
  and id in (select value from json_each(:ids)) -- when ids
order by created_at, id

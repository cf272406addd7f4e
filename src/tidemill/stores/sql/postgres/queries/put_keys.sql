-- put_keys: inserts a key; returns its id, or nothing if it exists.
-- takes: now timestamptz, id text, hash text, name text, role text, tenant text, created_by text, expires_at timestamptz
-- takes: max_priority int2, grant_json text
-- gives: id text
insert into tidemill.keys(id, hash, name, role, tenant, created_at, created_by, expires_at, max_priority, grant_json)
values (:id, :hash, :name, :role, :tenant, coalesce(:now::timestamptz, now()), :created_by, :expires_at, :max_priority, :grant_json)
on conflict (id) do nothing
returning id

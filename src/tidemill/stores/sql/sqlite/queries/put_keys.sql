-- put_keys: writes a new key; answers with its id, or with nothing where it was there already.
-- takes: now timestamptz, id text, hash text, name text, role text, tenant text, created_by text, expires_at timestamptz
-- gives: id text
insert into tidemill_keys(id, hash, name, role, tenant, created_at, created_by, expires_at)
values (:id, :hash, :name, :role, :tenant, :now, :created_by, :expires_at)
on conflict (id) do nothing
returning id

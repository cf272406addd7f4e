-- drop_definitions: marks living definitions as deleted; those that changed. Their schedules are removed after it, by a statement
-- that sees also what was written while this one waited for a lock. Index: definitions' primary key.
-- takes: now timestamptz, tenant text, ids uuids
-- gives: id uuid
update tidemill.definitions
set deleted_at = coalesce(:now::timestamptz, now()), updated_at = coalesce(:now::timestamptz, now())
where id = any(:ids::uuid[]) and deleted_at is null
  and tenant = :tenant -- when tenant
returning id

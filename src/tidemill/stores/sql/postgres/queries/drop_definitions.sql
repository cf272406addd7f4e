-- drop_definitions: marks existing definitions as deleted; returns those that changed. A second statement deletes their schedules,
-- because it also sees rows written while this one waited for a lock. Index: definitions' primary key.
-- takes: now timestamptz, tenant text, ids uuids
-- gives: id uuid
update tidemill.definitions
set deleted_at = coalesce(:now::timestamptz, now()), updated_at = coalesce(:now::timestamptz, now())
where id = any(:ids::uuid[]) and deleted_at is null
  and tenant = :tenant -- when tenant
returning id

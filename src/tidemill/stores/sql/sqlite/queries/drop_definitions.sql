-- drop_definitions: marks living definitions as deleted; those that changed. Their schedules are removed after it, by a statement
-- that sees also what was written while this one waited for a lock. Index: definitions' primary key.
-- takes: now timestamptz, tenant text, ids uuids
-- gives: id uuid
update tidemill_definitions set deleted_at = :now, updated_at = :now
where id in (select unhex(value) from json_each(:ids)) and deleted_at is null
  and tenant = :tenant -- when tenant
returning id

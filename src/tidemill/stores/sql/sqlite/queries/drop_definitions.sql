-- drop_definitions: marks existing definitions as deleted; returns those that changed. A second statement deletes their schedules,
-- because it also sees rows written while this one waited for a lock. Index: definitions' primary key.
-- takes: now timestamptz, tenant text, ids uuids
-- gives: id uuid
update tidemill_definitions set deleted_at = :now, updated_at = :now
where id in (select unhex(value) from json_each(:ids)) and deleted_at is null
  and tenant = :tenant -- when tenant
returning id

-- enable_definitions: enables or disables existing definitions, and lets their schedules count from now; returns those that changed.
-- Locks the definitions, then their schedules. Disabled schedules have no next fire; enabled ones are evaluated at once.
-- Indexes: definitions' primary key, schedules_definition.
-- takes: now timestamptz, tenant text, ids uuids, enabled bool
-- gives: id uuid
with changed as (
  update tidemill.definitions set enabled = :enabled::boolean, updated_at = coalesce(:now::timestamptz, now())
  where id = any(:ids::uuid[]) and deleted_at is null and enabled <> :enabled::boolean
    and tenant = :tenant -- when tenant
  returning id),
touched as (
  update tidemill.schedules s
  set revision = s.revision + 1, updated_at = coalesce(:now::timestamptz, now()), since_at = coalesce(:now::timestamptz, now()),
      next_fire_at = case when :enabled::boolean then coalesce(:now::timestamptz, now()) end
  from changed c where s.definition_id = c.id)
select id from changed

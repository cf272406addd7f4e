-- enable_schedules: enables or disables schedules; returns those that changed. Enabled ones count from now and are evaluated at once.
-- takes: now timestamptz, tenant text, ids uuids, enabled bool, note text
-- gives: id uuid
update tidemill.schedules
set enabled = :enabled::boolean, note = :note, revision = revision + 1, updated_at = coalesce(:now::timestamptz, now()),
    since_at = case when :enabled::boolean then coalesce(:now::timestamptz, now()) else since_at end,
    next_fire_at = case when :enabled::boolean then coalesce(:now::timestamptz, now()) else next_fire_at end
where id = any(:ids::uuid[]) and enabled <> :enabled::boolean
  and tenant = :tenant -- when tenant
returning id

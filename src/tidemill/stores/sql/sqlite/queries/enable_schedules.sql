-- enable_schedules: enables or disables schedules; returns those that changed. Enabled ones count from now and are evaluated at once.
-- takes: now timestamptz, tenant text, ids uuids, enabled bool, note text
-- gives: id uuid
update tidemill_schedules
set enabled = :enabled, note = :note, revision = revision + 1, updated_at = :now,
    since_at = case when :enabled then :now else since_at end,
    next_fire_at = case when :enabled then :now else next_fire_at end
where id in (select unhex(value) from json_each(:ids)) and enabled <> :enabled
  and tenant = :tenant -- when tenant
returning id

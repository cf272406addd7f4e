-- enable_definitions: enables or disables existing definitions, and lets their schedules count from now; returns those that changed.
-- Locks the definitions, then their schedules. Disabled schedules have no next fire; enabled ones are evaluated at once.
-- Indexes: definitions' primary key, schedules_definition.
-- takes: now timestamptz, tenant text, ids uuids, enabled bool
-- gives: id uuid
delete from temp.tidemill_fit
;
insert into temp.tidemill_fit(id)
select id from tidemill_definitions
where id in (select unhex(value) from json_each(:ids)) and deleted_at is null and enabled <> :enabled
  and tenant = :tenant -- when tenant
;
update tidemill_definitions set enabled = :enabled, updated_at = :now where id in (select id from temp.tidemill_fit)
;
update tidemill_schedules
set revision = revision + 1, updated_at = :now, since_at = :now, next_fire_at = case when :enabled then :now end
where definition_id in (select id from temp.tidemill_fit)
;
select id from temp.tidemill_fit

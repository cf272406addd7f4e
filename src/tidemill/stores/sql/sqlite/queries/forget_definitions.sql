-- forget_definitions: deletes definitions without schedules, and their versions; returns the deleted ids.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from tidemill_definition_versions
where definition_id in (
  select d.id from tidemill_definitions d
  where d.id in (select unhex(value) from json_each(:ids)) and d.tenant = :tenant
    and not exists (select 1 from tidemill_schedules s where s.definition_id = d.id))
;
delete from tidemill_definitions
where id in (select unhex(value) from json_each(:ids)) and tenant = :tenant
  and not exists (select 1 from tidemill_schedules s where s.definition_id = tidemill_definitions.id)
returning id

-- drop_schedules_of: deletes the schedules of definitions. Index: schedules_definition.
-- takes: ids uuids
delete from tidemill.schedules where definition_id = any(:ids::uuid[])

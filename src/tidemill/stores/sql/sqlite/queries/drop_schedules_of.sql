-- drop_schedules_of: deletes the schedules of definitions. Index: schedules_definition.
-- takes: ids uuids
delete from tidemill_schedules where definition_id in (select unhex(value) from json_each(:ids))

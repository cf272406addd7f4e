-- drop_sources: deletes what schedules react to, before it is written again.
-- takes: ids uuids
delete from tidemill_trigger_sources where schedule_id in (select unhex(value) from json_each(:ids))

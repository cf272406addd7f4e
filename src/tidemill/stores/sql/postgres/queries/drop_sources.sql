-- drop_sources: deletes what schedules react to, before it is written again.
-- takes: ids uuids
delete from tidemill.trigger_sources where schedule_id = any(:ids::uuid[])

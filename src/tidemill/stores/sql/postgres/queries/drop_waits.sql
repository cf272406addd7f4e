-- drop_waits: deletes the waits of these jobs. Index: waits' primary key.
-- takes: ids uuids
delete from tidemill.waits where job_id = any(:ids::uuid[])

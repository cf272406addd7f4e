-- drop_waits: deletes the waits of these jobs. Index: waits' primary key.
-- takes: ids uuids
delete from tidemill_waits where job_id in (select unhex(value) from json_each(:ids))

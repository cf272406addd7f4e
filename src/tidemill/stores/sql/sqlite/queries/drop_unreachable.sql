-- drop_unreachable: deletes the notes that these jobs can no longer start.
-- takes: ids uuids
delete from tidemill_unreachable_jobs where job_id in (select unhex(value) from json_each(:ids))

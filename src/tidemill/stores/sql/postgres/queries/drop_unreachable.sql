-- drop_unreachable: deletes the notes that these jobs can no longer start.
-- takes: ids uuids
delete from tidemill.unreachable_jobs where job_id = any(:ids::uuid[])

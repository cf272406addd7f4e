-- drop_blobs: deletes the blobs of these jobs; those outside the database are left to the next sweep.
-- takes: ids uuids
delete from tidemill_blobs where place is null and job_id in (select unhex(value) from json_each(:ids))
;
update tidemill_blobs set archived = 0 where place is not null and job_id in (select unhex(value) from json_each(:ids))

-- drop_blobs: deletes the blobs of these jobs; those outside the database are left to the next sweep.
-- takes: ids uuids
with gone as (delete from tidemill.blobs where place is null and job_id = any(:ids::uuid[]))
update tidemill.blobs set archived = false where place is not null and job_id = any(:ids::uuid[])

-- release_blobs: marks the blobs of these jobs as no longer archived. Index: the primary key.
-- takes: ids uuids
update tidemill_blobs set archived = 0 where archived and job_id in (select unhex(value) from json_each(:ids))

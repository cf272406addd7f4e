-- release_blobs: marks the blobs of these jobs as no longer archived. Index: blobs_pkey.
-- takes: ids uuids
update tidemill.blobs set archived = false where archived and job_id = any(:ids::uuid[])

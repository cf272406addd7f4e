-- retire_edges: excludes the edges of these jobs from all later counts.
-- takes: ids uuids, shard int2
update tidemill.dependencies set shard = :shard where job_id = any(:ids::uuid[]) and shard >= 0

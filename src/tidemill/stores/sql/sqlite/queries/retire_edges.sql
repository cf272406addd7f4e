-- retire_edges: excludes the edges of these jobs from all later counts.
-- takes: ids uuids, shard int2
update tidemill_dependencies set shard = :shard where job_id in (select unhex(value) from json_each(:ids)) and shard >= 0

-- edges_of: the edges from or to these jobs and groups, by job and need.
-- takes: ids uuids
-- gives: job_id uuid, needs_id uuid, condition text, shard int2
select job_id, needs_id, condition, shard from tidemill.dependencies where job_id = any(:ids::uuid[])
union
select job_id, needs_id, condition, shard from tidemill.dependencies where needs_id = any(:ids::uuid[])
order by job_id, needs_id

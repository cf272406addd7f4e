-- edges_to: the edges to these jobs and groups. Index: dependencies_needs.
-- takes: ids uuids, condition text
-- gives: job_id uuid, needs_id uuid, condition text, shard int2
select job_id, needs_id, condition, shard from tidemill.dependencies where needs_id = any(:ids::uuid[])
  and condition = :condition -- when condition

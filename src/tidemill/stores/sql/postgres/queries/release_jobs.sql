-- release_jobs: moves waiting jobs to ready; returns those that were waiting.
-- takes: now timestamptz, ids uuids
-- gives: id uuid, queue text
with
-- include: free_jobs(jobs=:ids::uuid[])
select id, queue from freed

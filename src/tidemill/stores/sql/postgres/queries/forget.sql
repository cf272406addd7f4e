-- forget: deletes the originals of archived jobs, each only if it is unchanged since the copy; returns the deleted ids.
-- Their blobs stay: the documents refer to them.
-- items: id uuid, tenant text, token int8, finished_at timestamptz
-- gives: id uuid
with gone as (
  delete from tidemill.history j
  using unnest(:id::uuid[], :tenant::text[], :token::bigint[], :finished_at::timestamptz[]) as x(id, tenant, token, finished_at)
  where j.id = x.id and j.tenant = x.tenant and j.token = x.token and j.finished_at = x.finished_at
  returning j.id, j.detailed),
details_gone as (delete from tidemill.details d using gone g where g.detailed and d.id = g.id),
executions_gone as (delete from tidemill.executions e using gone g where e.job_id = g.id),
logs_gone as (delete from tidemill.logs l using gone g where l.job_id = g.id),
checkpoints_gone as (delete from tidemill.checkpoints c using gone g where c.job_id = g.id),
dependencies_gone as (delete from tidemill.dependencies d using gone g where d.job_id = g.id),
blobs_kept as (update tidemill.blobs set archived = true where job_id = any(array(select id from gone)))
select id from gone

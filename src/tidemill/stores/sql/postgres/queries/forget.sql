-- forget: deletes the originals of archived jobs, each only if it is unchanged since the copy; returns the deleted ids.
-- Their blobs stay: the documents refer to them.
-- items: id uuid, tenant text, token int8, finished_at timestamptz
-- gives: id uuid
with gone as (
  delete from tidemill.history h
  using unnest(:id::uuid[], :tenant::text[], :token::bigint[], :finished_at::timestamptz[]) as x(id, tenant, token, finished_at)
  where h.id = x.id and h.tenant = x.tenant and h.token = x.token and h.finished_at = x.finished_at
    and not (h.tied and (
      -- include: needed_job
      ))
  returning h.id, h.detailed),
details_gone as (delete from tidemill.details d using gone g where g.detailed and d.id = g.id),
executions_gone as (delete from tidemill.executions e using gone g where e.job_id = g.id),
logs_gone as (delete from tidemill.logs l using gone g where l.job_id = g.id),
checkpoints_gone as (delete from tidemill.checkpoints c using gone g where c.job_id = g.id),
streams_gone as (delete from tidemill.streams s using gone g where s.job_id = g.id),
signals_gone as (delete from tidemill.signals s using gone g where s.job_id = g.id),
waits_gone as (delete from tidemill.waits w using gone g where w.job_id = g.id),
joins_gone as (delete from tidemill.joins j using gone g where j.id = g.id),
dependencies_gone as (delete from tidemill.dependencies d using gone g where d.job_id = g.id),
blobs_kept as (update tidemill.blobs set archived = true where job_id = any(array(select id from gone)))
select id from gone

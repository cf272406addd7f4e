-- delete: deletes ended jobs with all their records and the keys they hold; returns the deleted ids.
-- takes: tenant text, ids uuids
-- gives: id uuid
with gone as (
  delete from tidemill.history h
  where id = any(:ids::uuid[])
    and tenant = :tenant -- when tenant
    and not (h.tied and (
      -- include: needed_job
      ))
  returning id, detailed),
keyed as materialized (
  select l.place
  from (select u.tenant, u.key from gone g cross join lateral (
          select tenant, key from tidemill.uniques where job_id = g.id offset 0) u
        order by u.tenant, u.key) k
  cross join lateral (select ctid as place from tidemill.uniques where tenant = k.tenant and key = k.key for update) l),
keys_gone as (delete from tidemill.uniques where ctid = any(array(select place from keyed))),
details_gone as (delete from tidemill.details d using gone g where g.detailed and d.id = g.id),
executions_gone as (delete from tidemill.executions e using gone g where e.job_id = g.id),
logs_gone as (delete from tidemill.logs l using gone g where l.job_id = g.id),
checkpoints_gone as (delete from tidemill.checkpoints c using gone g where c.job_id = g.id),
streams_gone as (delete from tidemill.streams s using gone g where s.job_id = g.id),
signals_gone as (delete from tidemill.signals s using gone g where s.job_id = g.id),
waits_gone as (delete from tidemill.waits w using gone g where w.job_id = g.id),
joins_gone as (delete from tidemill.joins j using gone g where j.id = g.id),
dependencies_gone as (delete from tidemill.dependencies d using gone g where d.job_id = g.id),
blobs_gone as (delete from tidemill.blobs where place is null and job_id = any(array(select id from gone)))
select id from gone

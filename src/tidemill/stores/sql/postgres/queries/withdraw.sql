-- withdraw: deletes jobs that went to another store, each only if it has not begun or changed; returns the deleted ids.
-- Locks jobs first, then keys in their order. With a reason also copies that wait for it. The end of such a job is not recorded.
-- takes: tenant text, reason text
-- items: id uuid, queue text, priority int2, run_at timestamptz, limits text
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :queue::text[], :priority::smallint[], :run_at::timestamptz[], :limits::text[])
    as x(id, queue, priority, run_at, limits)),
from_ready as (
  delete from tidemill.ready j using item x
  where j.id = x.id and j.tenant = :tenant
    and (j.queue, j.priority, j.run_at) = (x.queue, x.priority, x.run_at) and j.limits is not distinct from x.limits and
    -- include: carried_job
  returning j.id, j.detailed),
from_scheduled as (
  delete from tidemill.scheduled j using item x
  where j.id = x.id and j.tenant = :tenant
    and (j.queue, j.priority, j.run_at) = (x.queue, x.priority, x.run_at) and j.limits is not distinct from x.limits and
    -- include: carried_job
  returning j.id, j.detailed),
from_parked as ( -- when reason
  delete from tidemill.parked j using item x -- when reason
  where j.id = x.id and j.tenant = :tenant and j.state = 'waiting' and j.token = 0 and j.reason = :reason -- when reason
  returning j.id, j.detailed), -- when reason
gone as materialized (
  select * from from_ready union all select * from from_scheduled
  union all select * from from_parked -- when reason
  ),
keyed as materialized (
  select l.place
  from (select u.tenant, u.key from gone g cross join lateral (
          select tenant, key from tidemill.uniques where job_id = g.id offset 0) u
        order by u.tenant, u.key) k
  cross join lateral (select ctid as place from tidemill.uniques where tenant = k.tenant and key = k.key for update) l),
keys_gone as (delete from tidemill.uniques where ctid = any(array(select place from keyed))),
details_gone as (delete from tidemill.details d using gone g where g.detailed and d.id = g.id)
select id from gone

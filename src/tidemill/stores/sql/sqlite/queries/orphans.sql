-- orphans: jobs held by workers that were declared gone or that have no row, the oldest claim first.
-- Finds the workers first, by a loose scan of running_worker, because there is no hash join over all running jobs.
-- takes: limit int4
with recursive holder(worker) as (
  select min(worker) from tidemill_running
  union all
  select (select min(r.worker) from tidemill_running r where r.worker > h.worker) from holder h where h.worker is not null)
select
  -- include: held_row
from tidemill_running r
where r.worker in (
  select h.worker from holder h left join tidemill_workers w on w.id = h.worker where w.id is null or w.state = 'stopped')
order by r.claimed_at, r.id limit max(:limit, 0)

-- orphans: jobs held by workers that were declared gone or that have no row, the oldest claim first.
-- Finds the workers first, by a loose scan of running_worker, because there is no hash join over all running jobs.
-- takes: limit int4
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, state text, cancel_reason text, worker uuid
with recursive holder(worker) as (
  select min(worker) from tidemill_running
  union all
  select (select min(r.worker) from tidemill_running r where r.worker > h.worker) from holder h where h.worker is not null)
select r.id, r.task, r.queue, r.tenant, r.priority, r.attempt, r.max_attempts, r.crashes, r.token, r.run_at, r.created_at,
       r.expires_at, r.timeout, r.args, r.unique_key, r.limits, r.detailed, r.state, r.cancel_reason, r.worker
from tidemill_running r
where r.worker in (
  select h.worker from holder h left join tidemill_workers w on w.id = h.worker where w.id is null or w.state = 'stopped')
order by r.claimed_at, r.id limit max(:limit, 0)

-- holding: held jobs with their workers, the oldest claim first. Reads all held jobs, which are few.
-- takes: now timestamptz, tenant text, since timestamptz, limit int4
-- gives: id uuid, task text, queue text, tenant text, state text, attempt int4, timeout interval, worker uuid
-- gives: worker_name text, claimed_at timestamptz, started_at timestamptz, beat_at timestamptz, expires_at timestamptz
-- gives: progress text
select r.id, r.task, r.queue, r.tenant, r.state, r.attempt, r.timeout, r.worker, w.name as worker_name, r.claimed_at,
       r.started_at, w.beat_at, w.expires_at, r.progress
from tidemill_running r left join tidemill_workers w on w.id = r.worker
where true
  and r.tenant = :tenant -- when tenant
  and coalesce(r.started_at, r.claimed_at) <= :since -- when since
  and r.state = 'running' and r.started_at + r.timeout <= :now -- when overdue
  and (w.id is null or w.expires_at <= :now) -- when orphaned
order by r.claimed_at, r.id limit max(:limit, 0)

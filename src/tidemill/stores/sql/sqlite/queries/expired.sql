-- expired: jobs that no worker holds and whose expiry has passed, the longest expired first; read only.
-- Indexes: ready_expires, scheduled_expires, parked_expires, which exclude jobs without an expiry; then the primary keys.
-- takes: now timestamptz, limit int4
-- gives: id uuid, tenant text, queue text, task text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval
-- gives: unique_key text, limits text, detailed bool, reason text, args text, state text, execution text, worker uuid
-- gives: claimed_at timestamptz, started_at timestamptz, finished_at timestamptz, cancel_reason text, progress text
-- gives: result text, error text
select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
       unique_key, limits, detailed, reason, args, state, execution, worker, claimed_at, started_at, finished_at,
       cancel_reason, progress, result, error
from tidemill_jobs
where id in (
  select id from (
    select * from (
      select id, expires_at from tidemill_ready indexed by tidemill_ready_expires
      where expires_at <= :now order by expires_at, id limit max(:limit, 0))
    union all
    select * from (
      select id, expires_at from tidemill_scheduled indexed by tidemill_scheduled_expires
      where expires_at <= :now order by expires_at, id limit max(:limit, 0))
    union all
    select * from (
      select id, expires_at from tidemill_parked indexed by tidemill_parked_expires
      where state = 'waiting' and expires_at <= :now order by expires_at, id limit max(:limit, 0)))
  order by expires_at, id limit max(:limit, 0))
order by expires_at, id

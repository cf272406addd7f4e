-- expired: jobs that no worker holds and whose expiry has passed, the longest expired first; read only.
-- Indexes: ready_expires, scheduled_expires, parked_expires, which exclude jobs without an expiry; then the primary keys.
-- takes: now timestamptz, limit int4
select
  -- include: job_row(args=args; result=result)
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

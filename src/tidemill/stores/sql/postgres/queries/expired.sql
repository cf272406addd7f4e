-- expired: jobs that no worker holds and whose expiry has passed, the longest expired first; read only.
-- Indexes: ready_expires, scheduled_expires, parked_expires, which exclude jobs without an expiry; then the primary keys.
-- takes: now timestamptz, limit int4
with late as materialized (
  select id from (
    (select id, expires_at from tidemill.ready
     where expires_at <= coalesce(:now::timestamptz, now()) order by expires_at, id limit :limit)
    union all
    (select id, expires_at from tidemill.scheduled
     where expires_at <= coalesce(:now::timestamptz, now()) order by expires_at, id limit :limit)
    union all
    (select id, expires_at from tidemill.parked
     where state = 'waiting' and expires_at <= coalesce(:now::timestamptz, now()) order by expires_at, id limit :limit)) j
  order by expires_at, id limit :limit)
select
  -- include: job_row(args=args; result=result)
from tidemill.jobs
where id = any(array(select id from late))
order by expires_at, id

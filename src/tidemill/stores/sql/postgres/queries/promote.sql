-- promote: moves jobs that are due to ready, the earliest first; answers with the lanes that grew.
-- Locks the rows it moves and skips those another promoter holds. Indexes: scheduled_due, parked_due.
-- takes: now timestamptz, limit int4
-- gives: queue text, tenant text, priority int2, moved int8
with delayed as materialized (
  select ctid as place, id, run_at from tidemill.scheduled
  where run_at <= coalesce(:now::timestamptz, now()) order by run_at, id limit :limit for update skip locked),
asleep as materialized (
  select ctid as place, id, run_at from tidemill.parked
  where wakes and run_at <= coalesce(:now::timestamptz, now()) order by run_at, id limit :limit for update skip locked),
chosen as materialized (
  select id from (select id, run_at from delayed union all select id, run_at from asleep) due
  order by run_at, id limit :limit),
from_scheduled as (
  delete from tidemill.scheduled
  where ctid = any(array(select place from delayed where id in (select id from chosen)))
  returning id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at,
            timeout, unique_key, until_claimed, limits, detailed, reason, args),
from_parked as (
  delete from tidemill.parked
  where ctid = any(array(select place from asleep where id in (select id from chosen)))
  returning id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at,
            timeout, unique_key, until_claimed, limits, detailed, reason, args),
moved as materialized (select * from from_scheduled union all select * from from_parked),
into_ready as (
  insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, until_claimed, limits, detailed, reason, args
  from moved order by run_at, id)
select queue, tenant, priority, count(*) as moved from moved group by queue, tenant, priority

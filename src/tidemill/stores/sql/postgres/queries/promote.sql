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
  select place, waits from (
    select place, id, run_at, false as waits from delayed union all select place, id, run_at, true from asleep) due
  order by run_at, id limit :limit),
from_scheduled as (
  delete from tidemill.scheduled
  where ctid = any(array(select place from chosen where not waits))
  returning id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at,
            timeout, unique_key, until_claimed, limits, detailed, reason, args),
from_parked as (
  delete from tidemill.parked
  where ctid = any(array(select place from chosen where waits))
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

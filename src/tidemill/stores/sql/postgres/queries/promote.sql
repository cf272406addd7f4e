-- promote: moves due jobs to ready, the earliest first; returns the lanes that grew and when the next job is due.
-- The instant is in every row, and in a row without a lane if none grew. Locks the rows it moves and skips those another promoter
-- has locked. A statement still sees the rows it deletes, so the next due job is searched among the others: the deleted ids go
-- through an array, whose length is estimated as small, so that they are always hashed. Indexes: scheduled_due, parked_due.
-- takes: now timestamptz, limit int4
-- gives: queue text, tenant text, priority int2, moved int8, next_run_at timestamptz
with delayed as materialized (
  select ctid as place, id, run_at from tidemill.scheduled
  where run_at <= coalesce(:now::timestamptz, now()) order by run_at, id limit :limit for update skip locked),
asleep as materialized (
  select ctid as place, id, run_at from tidemill.parked
  where wakes and run_at <= coalesce(:now::timestamptz, now()) order by run_at, id limit :limit for update skip locked),
chosen as materialized (
  select place, id, waits from (
    select place, id, run_at, false as waits from delayed union all select place, id, run_at, true from asleep) due
  order by run_at, id limit :limit),
from_scheduled as (
  delete from tidemill.scheduled
  where ctid = any(array(select place from chosen where not waits))
  returning
    -- include: waiting_columns
    , reason),
from_parked as (
  delete from tidemill.parked
  where ctid = any(array(select place from chosen where waits))
  returning
    -- include: waiting_columns
    , reason),
moved as materialized (select * from from_scheduled union all select * from from_parked),
into_ready as (
  insert into tidemill.ready(
    -- include: waiting_columns
    , reason)
  select
    -- include: waiting_columns
    , reason
  from moved order by run_at, id),
grown as (select queue, tenant, priority, count(*) as moved from moved group by queue, tenant, priority),
next as (
  select least(
    (select run_at from tidemill.scheduled
     where id not in (select unnest(array(select id from chosen where not waits))) order by run_at, id limit 1),
    (select run_at from tidemill.parked
     where wakes and id not in (select unnest(array(select id from chosen where waits))) order by run_at, id limit 1)) as run_at)
select g.queue, g.tenant, g.priority, coalesce(g.moved, 0) as moved, n.run_at as next_run_at
from next n left join grown g on true

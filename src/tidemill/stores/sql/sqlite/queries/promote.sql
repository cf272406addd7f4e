-- promote: moves due jobs to ready, the earliest first; returns the lanes that grew and when the next job is due.
-- The instant is in every row, and in a row without a lane if none grew. A write transaction excludes other writers, so nothing is locked.
-- Indexes: scheduled_due, parked_due.
-- takes: now timestamptz, limit int4
-- gives: queue text, tenant text, priority int2, moved int8, next_run_at timestamptz
delete from temp.tidemill_due
;
insert into temp.tidemill_due(id)
select id from (
  select id, run_at from (
    select id, run_at from tidemill_scheduled indexed by tidemill_scheduled_due
    where run_at <= :now order by run_at, id limit max(:limit, 0))
  union all
  select id, run_at from (
    select id, run_at from tidemill_parked indexed by tidemill_parked_due
    where wakes and run_at <= :now order by run_at, id limit max(:limit, 0)))
order by run_at, id limit max(:limit, 0)
;
insert into tidemill_ready(
  -- include: waiting_columns
  , reason)
select
  -- include: waiting_columns(prefix=j)
  , j.reason
from temp.tidemill_due d cross join tidemill_scheduled j on j.id = d.id
union all
select
  -- include: waiting_columns(prefix=j)
  , j.reason
from temp.tidemill_due d cross join tidemill_parked j on j.id = d.id
order by j.run_at, j.id
;
delete from tidemill_scheduled where id in (select id from temp.tidemill_due)
;
delete from tidemill_parked where id in (select id from temp.tidemill_due)
;
select g.queue, g.tenant, g.priority, coalesce(g.moved, 0) as moved, n.run_at as next_run_at
from (select min(run_at) as run_at
      from (select min(run_at) as run_at from tidemill_scheduled
            union all
            select min(run_at) from tidemill_parked where wakes)) n
left join (select r.queue, r.tenant, r.priority, count(*) as moved
           from temp.tidemill_due d cross join tidemill_ready r on r.id = d.id
           group by r.queue, r.tenant, r.priority) g on true

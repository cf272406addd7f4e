-- flow_totals: the numbers of flows and of waiting jobs. Indexes: flows_live, flows_ended, parked_state.
-- takes: tenant text, ended_after timestamptz
-- gives: running int8, completed int8, failed int8, cancelled int8, waiting_for_jobs int8, waiting_for_signals int8
-- gives: waiting_for_events int8, sleeping int8, unreachable int8, unreachable_at timestamptz
with ended as (
  select state, count(*) as number from tidemill.flows where ended_at > :ended_after::timestamptz and kind = 'flow'
    and tenant = :tenant -- when tenant
  group by state),
awaited as (
  select w.job_id, min(case when w.event then 1 else 0 end) as events from tidemill.waits w
  where exists (select from tidemill.parked p where p.id = w.job_id and p.state = 'waiting')
    and w.tenant = :tenant -- when tenant
  group by w.job_id),
noted as (
  select count(*) as number, min(u.created_at) as created_at from tidemill.unreachable_jobs u
  where exists (select from tidemill.parked p where p.id = u.job_id and p.state = 'waiting'
                and p.tenant = :tenant -- when tenant
               ))
select
  (select count(*) from tidemill.flows where ended_at is null and kind = 'flow'
     and tenant = :tenant -- when tenant
  ) as running,
  coalesce((select number from ended where state = 'completed'), 0) as completed,
  coalesce((select number from ended where state = 'failed'), 0) as failed,
  coalesce((select number from ended where state = 'cancelled'), 0) as cancelled,
  (select count(*) from tidemill.parked p where p.state = 'waiting'
     and p.tenant = :tenant -- when tenant
     and exists (select from tidemill.joins j where j.id = p.id and j.shard = 0 and j.remaining > 0)
     and not exists (select from tidemill.waits w where w.job_id = p.id)) as waiting_for_jobs,
  (select count(*) from awaited where events = 0) as waiting_for_signals,
  (select count(*) from awaited where events = 1) as waiting_for_events,
  (select count(*) from tidemill.parked p where p.state = 'waiting' and p.wakes
     and p.tenant = :tenant -- when tenant
     and not exists (select from tidemill.joins j where j.id = p.id and j.shard = 0 and j.remaining > 0)
     and not exists (select from tidemill.waits w where w.job_id = p.id)) as sleeping,
  n.number as unreachable, n.created_at as unreachable_at
from noted n

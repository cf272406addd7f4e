-- depths: the waiting jobs of each queue, and since when the first jobs of its lanes are due. Indexes: ready_claim, scheduled_due.
-- A loose scan finds the heads of lanes without limits; lanes with limits, which may be as many as jobs, are read in full.
-- takes: now timestamptz, tenant text
-- gives: queue text, pending int8, late int8, oldest_at timestamptz
with recursive lane as (
  (select queue, tenant, priority, gate, run_at from tidemill.ready order by queue, tenant, priority desc, gate, seq limit 1)
  union all
  select n.queue, n.tenant, n.priority, n.gate, n.run_at from lane l cross join lateral (
    (select queue, tenant, priority, gate, run_at from tidemill.ready
     where queue = l.queue and tenant = l.tenant and priority < l.priority order by priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, run_at from tidemill.ready
     where queue = l.queue and tenant > l.tenant order by tenant, priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, run_at from tidemill.ready
     where queue > l.queue order by queue, tenant, priority desc, gate, seq limit 1)
    limit 1) n)
select queue, sum(pending)::int8 as pending, sum(late)::int8 as late, min(oldest_at) as oldest_at
from (
  select queue, count(*) as pending, 0 as late, null::timestamptz as oldest_at
  from tidemill.ready
  where true
    and tenant = :tenant -- when tenant
  group by queue
  union all
  select queue, 0, count(*), min(run_at)
  from tidemill.scheduled
  where run_at <= coalesce(:now::timestamptz, now())
    and tenant = :tenant -- when tenant
  group by queue
  union all
  select l.queue, 0, 0, min(h.run_at)
  from lane l cross join lateral (
    select l.run_at
    union all
    (select g.run_at from (
       select distinct on (gate) gate, run_at from tidemill.ready
       where queue = l.queue and tenant = l.tenant and priority = l.priority and gate > '' order by gate, seq) g)) h
  where true
    and l.tenant = :tenant -- when tenant
  group by l.queue) d
group by queue order by queue

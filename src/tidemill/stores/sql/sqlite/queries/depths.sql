-- depths: the waiting jobs of each queue, and since when the first jobs of its lanes are due. Indexes: ready_claim, scheduled_due.
-- A loose scan finds the heads of lanes without limits; lanes with limits, which may be as many as jobs, are read in full.
-- takes: now timestamptz, tenant text
-- gives: queue text, pending int8, late int8, oldest_at timestamptz
with recursive lane(seq) as (
  select (select seq from tidemill_ready order by queue, tenant, priority desc, gate, seq limit 1)
  union all
  select coalesce(
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant = r.tenant and n.priority < r.priority
     order by n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant > r.tenant order by n.tenant, n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue > r.queue order by n.queue, n.tenant, n.priority desc, n.gate, n.seq limit 1))
  from lane l cross join tidemill_ready r on r.seq = l.seq)
select queue, sum(pending) as pending, sum(late) as late, min(oldest_at) as oldest_at
from (
  select queue, count(*) as pending, 0 as late, null as oldest_at
  from tidemill_ready
  where true
    and tenant = :tenant -- when tenant
  group by queue
  union all
  select queue, 0, count(*), min(run_at)
  from tidemill_scheduled indexed by tidemill_scheduled_due
  where run_at <= :now
    and tenant = :tenant -- when tenant
  group by queue
  union all
  select r.queue, 0, 0, min(r.run_at)
  from lane l cross join tidemill_ready r on r.seq = l.seq
  where true
    and r.tenant = :tenant -- when tenant
  group by r.queue
  union all
  select queue, 0, 0, min(run_at)
  from (
    select g.queue, min(g.seq), g.run_at -- of the row with the lowest number
    from lane l cross join tidemill_ready r on r.seq = l.seq
    cross join tidemill_ready g indexed by tidemill_ready_claim
      on g.queue = r.queue and g.tenant = r.tenant and g.priority = r.priority and g.gate > ''
    where true
      and g.tenant = :tenant -- when tenant
    group by g.queue, g.tenant, g.priority, g.gate)
  group by queue) d
group by queue order by queue

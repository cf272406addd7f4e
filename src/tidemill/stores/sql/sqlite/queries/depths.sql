-- depths: what waits in each queue, and since when the first in its lanes are due. Indexes: ready_claim, scheduled_due.
-- takes: now timestamptz, tenant text
-- gives: queue text, pending int8, late int8, oldest_at timestamptz
with recursive lane(seq) as (
  select (select seq from tidemill_ready order by queue, tenant, priority desc, seq limit 1)
  union all
  select coalesce(
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant = r.tenant and n.priority < r.priority order by n.priority desc, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant > r.tenant order by n.tenant, n.priority desc, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue > r.queue order by n.queue, n.tenant, n.priority desc, n.seq limit 1))
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
  group by r.queue) d
group by queue order by queue

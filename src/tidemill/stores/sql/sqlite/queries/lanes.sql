-- lanes: the lanes with pending jobs without limits, and the lowest number in each.
-- A loose scan of the index ready_claim, in which they precede lanes with limits.
-- Walks from number to number by single values, because there are no lateral joins; the last one yields a null, which joins nothing.
-- takes: queues texts
-- gives: queue text, tenant text, priority int2, low int8
with recursive lane(seq) as (
  select (select seq from tidemill_ready order by queue, tenant, priority desc, gate, seq limit 1)
  union all
  select coalesce(
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant = r.tenant and n.priority < r.priority order by n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant > r.tenant order by n.tenant, n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue > r.queue order by n.queue, n.tenant, n.priority desc, n.gate, n.seq limit 1))
  from lane l cross join tidemill_ready r on r.seq = l.seq)
select r.queue, r.tenant, r.priority, r.seq as low
from lane l cross join tidemill_ready r on r.seq = l.seq
where r.gate = ''
  and r.queue in (select value from json_each(:queues)) -- when queues

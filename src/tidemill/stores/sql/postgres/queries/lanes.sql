-- lanes: the lanes with pending jobs without limits, and the lowest number in each.
-- A loose scan of the index ready_claim, in which they precede lanes with limits.
-- takes: queues texts
-- gives: queue text, tenant text, priority int2, low int8
with recursive lane as (
  (select queue, tenant, priority, gate, seq from tidemill.ready order by queue, tenant, priority desc, gate, seq limit 1)
  union all
  select n.queue, n.tenant, n.priority, n.gate, n.seq from lane l cross join lateral (
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue = l.queue and tenant = l.tenant and priority < l.priority order by priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue = l.queue and tenant > l.tenant order by tenant, priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue > l.queue order by queue, tenant, priority desc, gate, seq limit 1)
    limit 1) n)
select queue, tenant, priority, seq as low from lane
where gate = ''
  and queue = any(:queues::text[]) -- when queues

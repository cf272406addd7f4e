-- gates: the lanes of pending jobs with limits, from one lane on, and the lowest number in each.
-- A loose scan of the index ready_claim, which skips the heads of lanes without limits. Walks from number to number, like `lanes`.
-- takes: queues texts, limit int4, after_queue text, after_tenant text, after_priority int2, after_gate text
-- gives: queue text, tenant text, priority int2, gate text, low int8
with recursive lane(seq) as (
  select coalesce(
    (select n.seq from tidemill_ready n
     where n.queue = :after_queue and n.tenant = :after_tenant and n.priority = :after_priority and n.gate > :after_gate
     order by n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = :after_queue and n.tenant = :after_tenant and n.priority < :after_priority
     order by n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = :after_queue and n.tenant > :after_tenant order by n.tenant, n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue > :after_queue order by n.queue, n.tenant, n.priority desc, n.gate, n.seq limit 1))
  union all
  select coalesce(
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant = r.tenant and n.priority = r.priority and n.gate > r.gate
     order by n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant = r.tenant and n.priority < r.priority
     order by n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue = r.queue and n.tenant > r.tenant order by n.tenant, n.priority desc, n.gate, n.seq limit 1),
    (select n.seq from tidemill_ready n
     where n.queue > r.queue order by n.queue, n.tenant, n.priority desc, n.gate, n.seq limit 1))
  from lane l cross join tidemill_ready r on r.seq = l.seq)
select r.queue, r.tenant, r.priority, r.gate, r.seq as low
from lane l cross join tidemill_ready r on r.seq = l.seq
where r.gate <> ''
  and r.queue in (select value from json_each(:queues)) -- when queues
limit :limit

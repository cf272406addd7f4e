-- gates: the lanes of pending jobs with limits, from one lane on, and the lowest number in each.
-- A loose scan of the index ready_claim, which skips the heads of lanes without limits.
-- takes: queues texts, limit int4, after_queue text, after_tenant text, after_priority int2, after_gate text
-- gives: queue text, tenant text, priority int2, gate text, low int8
with recursive lane as (
  select :after_queue::text collate "C" as queue, :after_tenant::text collate "C" as tenant, :after_priority::smallint as priority,
         :after_gate::text collate "C" as gate, null::bigint as seq
  union all
  select n.queue, n.tenant, n.priority, n.gate, n.seq from lane l cross join lateral (
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue = l.queue and tenant = l.tenant and priority = l.priority and gate > l.gate order by gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue = l.queue and tenant = l.tenant and priority < l.priority order by priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue = l.queue and tenant > l.tenant order by tenant, priority desc, gate, seq limit 1)
    union all
    (select queue, tenant, priority, gate, seq from tidemill.ready
     where queue > l.queue order by queue, tenant, priority desc, gate, seq limit 1)
    limit 1) n)
select queue, tenant, priority, gate, seq as low from lane
where seq is not null and gate <> ''
  and queue = any(:queues::text[]) -- when queues
limit :limit

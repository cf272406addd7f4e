-- input_results: the results of ended jobs that these jobs name as their inputs.
-- Indexes: the primary keys of details and history.
-- takes: ids uuids, limit int4, largest int4
-- gives: id uuid, task text, node text, position int4, state text, result text
with input as materialized (
  select distinct d.tenant, n.id::uuid as id
  from tidemill.details d cross join lateral jsonb_array_elements_text(d.options -> 'inputs') as n(id)
  where d.id = any(:ids::uuid[]))
select h.id, h.task, d.node, d.position, h.state, h.result
from input i
cross join lateral (
  select id, task, state, result from tidemill.history h
  where h.id = i.id and h.tenant = i.tenant and coalesce(length(h.result), 0) <= :largest offset 0) h
left join tidemill.details d on d.id = h.id
limit :limit

-- input_results: the results of ended jobs that these jobs name as their inputs.
-- Indexes: the primary keys of details and history.
-- takes: ids uuids, limit int4, largest int4
-- gives: id uuid, task text, node text, position int4, state text, result text
select distinct h.id, h.task, d.node, d.position, h.state, h.result
from json_each(:ids) j
cross join tidemill_details n on n.id = unhex(j.value)
cross join json_each(n.options, '$.inputs') i
cross join tidemill_history h on h.id = unhex(replace(i.value, '-', '')) and h.tenant = n.tenant
  and coalesce(length(h.result), 0) <= :largest
left join tidemill_details d on d.id = h.id
limit :limit

-- group_results: the results of the members of a group, by position. Indexes: details_group, the primary key of history.
-- takes: group_id uuid, tenant text, after int4, limit int4
-- gives: id uuid, task text, node text, position int4, state text, result text
select d.id, coalesce(h.task, '') as task, d.node, d.position, h.state, h.result
from tidemill_details d
left join tidemill_history h on h.id = d.id
where d.group_id = :group_id and d.position > :after
  and d.tenant = :tenant -- when tenant
order by d.position, d.id limit :limit

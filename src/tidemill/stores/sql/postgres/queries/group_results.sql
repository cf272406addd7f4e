-- group_results: the results of the members of a group, by position. Indexes: details_group, the primary key of history.
-- takes: group_id uuid, tenant text, after int4, limit int4
-- gives: id uuid, task text, node text, position int4, state text, result text
select d.id, coalesce(h.task, '') as task, d.node, d.position, h.state, h.result
from tidemill.details d
left join lateral (select task, state, result from tidemill.history h where h.id = d.id offset 0) h on true
where d.group_id = :group_id::uuid and d.position > :after::int
  and d.tenant = :tenant -- when tenant
order by d.position, d.id limit :limit

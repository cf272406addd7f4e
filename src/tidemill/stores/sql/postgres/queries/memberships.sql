-- memberships: the groups that count the ends of these jobs and groups.
-- takes: ids uuids
-- gives: id uuid, group_id uuid, group_shard int2, may_fail bool
select id, group_id, coalesce(group_shard, 0::smallint) as group_shard, may_fail from tidemill.details
where id = any(:ids::uuid[]) and group_id is not null
union all
select id, group_id, group_shard, false from tidemill.flows where id = any(:ids::uuid[]) and group_id is not null

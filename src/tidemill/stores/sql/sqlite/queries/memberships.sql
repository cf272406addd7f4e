-- memberships: the groups that count the ends of these jobs and groups.
-- takes: ids uuids
-- gives: id uuid, group_id uuid, group_shard int2, may_fail bool
select id, group_id, coalesce(group_shard, 0) as group_shard, may_fail from tidemill_details
where id in (select unhex(value) from json_each(:ids)) and group_id is not null
union all
select id, group_id, group_shard, 0 from tidemill_flows where id in (select unhex(value) from json_each(:ids)) and group_id is not null

-- member_ends: how many members of groups have ended in each shard, and how many of them failed although they may not.
-- Index: details_group.
-- takes: ids uuids
-- gives: group_id uuid, shard int2, ended int8, bad int8
select m.group_id, m.shard, count(*) as ended, sum(m.failed) as bad from (
  select d.group_id, coalesce(d.group_shard, 0) as shard,
         h.state not in ('completed', 'cancelled') and not d.may_fail as failed
  from tidemill_details d cross join tidemill_history h on h.id = d.id
  where d.group_id in (select unhex(value) from json_each(:ids))
  union all
  select f.group_id, f.group_shard, f.state = 'failed' from tidemill_flows f
  where f.group_id in (select unhex(value) from json_each(:ids)) and f.ended_at is not null) m
group by m.group_id, m.shard

-- member_ends: how many members of groups have ended in each shard, and how many of them failed although they may not.
-- Index: details_group.
-- takes: ids uuids
-- gives: group_id uuid, shard int2, ended int8, bad int8
select m.group_id, m.shard, count(*) as ended, count(*) filter (where m.failed) as bad from (
  select d.group_id, coalesce(d.group_shard, 0::smallint) as shard,
         h.state not in ('completed', 'cancelled') and not d.may_fail as failed
  from tidemill.details d join tidemill.history h on h.id = d.id where d.group_id = any(:ids::uuid[])
  union all
  select f.group_id, f.group_shard, f.state = 'failed' from tidemill.flows f where f.group_id = any(:ids::uuid[]) and f.ended_at is not null) m
group by m.group_id, m.shard

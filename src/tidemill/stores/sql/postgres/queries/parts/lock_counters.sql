-- lock_counters: locks the counter rows into which the ends of `ending` count, by id and shard.
-- Groups are compared with null outside of the lookups, so that no plan reads a partial index of them.
member as materialized (
  select m.group_id, m.group_shard from ending e cross join lateral (
    select group_id, coalesce(group_shard, 0::smallint) as group_shard from tidemill.details d
    where d.id = e.id
    union all select group_id, group_shard from tidemill.flows f where f.id = e.id offset 0) m
  where m.group_id is not null),
counter as materialized (
  select group_id as id, group_shard as shard from member
  union
  select d.job_id, d.shard from ending e
  cross join lateral (select job_id, shard from tidemill.dependencies d where d.needs_id = e.id offset 0) d
  union
  select d.job_id, d.shard from (select distinct group_id from member) g
  cross join lateral (
    select job_id, shard from tidemill.dependencies d
    where d.needs_id = g.group_id and d.condition = 'first_failure' offset 0) d),
locked as materialized (
  select j.id from (select id, shard from counter order by id, shard) c
  cross join lateral (
    select j.id from tidemill.joins j where j.id = c.id and j.shard = c.shard for update) j)

-- waiters: the jobs and groups that wait, directly or not, for the end of a job; at most 100 steps away.
-- takes: id uuid
-- gives: id uuid
with recursive waiter(id, hops) as (
  select :id::uuid, 0
  union
  select n.id, w.hops + 1 from waiter w cross join lateral (
    select d.job_id as id from tidemill.dependencies d where d.needs_id = w.id and d.shard >= 0
    union all select t.group_id from tidemill.details t where t.id = w.id and t.group_id is not null
    union all select f.group_id from tidemill.flows f where f.id = w.id and f.group_id is not null) n
  where w.hops < 100)
select distinct id from waiter where hops > 0

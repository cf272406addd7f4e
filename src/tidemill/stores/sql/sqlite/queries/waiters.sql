-- waiters: the jobs and groups that wait, directly or not, for the end of a job; at most 100 steps away.
-- takes: id uuid
-- gives: id uuid
with recursive waiter(id, hops) as (
  select :id, 0
  union
  select d.job_id, w.hops + 1 from waiter w cross join tidemill_dependencies d on d.needs_id = w.id
  where w.hops < 100 and d.shard >= 0
  union
  select t.group_id, w.hops + 1 from waiter w cross join tidemill_details t on t.id = w.id
  where w.hops < 100 and t.group_id is not null
  union
  select f.group_id, w.hops + 1 from waiter w cross join tidemill_flows f on f.id = w.id
  where w.hops < 100 and f.group_id is not null)
select distinct id from waiter where hops > 0

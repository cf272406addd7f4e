-- finish_tied: as `finish`, and counts the ends of tied jobs for the jobs and groups that wait for them.
-- PostgreSQL only: SQLite has no statement that writes to several tables. `lock_ties` runs first in the same transaction: the snapshot
-- of this statement then contains every edge to these jobs. Returns the lost ids, the released jobs with their queues, the closed groups
-- with their states, whose ends `count_ends` counts next, and the jobs that can no longer start.
-- include: finish_jobs
,
end_row as materialized (
  select g.id, case when g.new_state = 'completed' then 'success' when g.new_state = 'cancelled' then 'cancel' else 'failure' end as outcome,
         d.group_id, d.group_shard, coalesce(d.may_fail, false) as may_fail
  from gone g left join lateral (
    select group_id, group_shard, may_fail from tidemill.details d where d.id = g.id offset 0) d on true
  where g.ends and g.tied),
-- include: count_ends
-- include: count_result
union all select 'lost', id, null from (select id from item except select id from gone) l

-- count_ends: counts ends that this transaction has written, of jobs or groups, for the jobs and groups that wait for them.
-- PostgreSQL only, like `finish_tied`. `lock_ends` runs first in the same transaction. Returns what `finish_tied` returns, except lost ids.
-- takes: now timestamptz
-- items: id uuid, outcome text
with end_row as materialized (
  select x.id, x.outcome, m.group_id, m.group_shard, coalesce(m.may_fail, false) as may_fail
  from unnest(:id::uuid[], :outcome::text[]) as x(id, outcome)
  left join lateral (
    select group_id, group_shard, may_fail from tidemill.details d where d.id = x.id
    union all
    select group_id, group_shard, false from tidemill.flows f where f.id = x.id
    offset 0) m on m.group_id is not null),
-- include: count_ends
-- include: count_result

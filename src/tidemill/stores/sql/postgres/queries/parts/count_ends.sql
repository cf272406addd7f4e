-- count_ends: counts the ends of `end_row` for the jobs and groups that wait for them; releases jobs and closes groups whose join is full.
-- The arithmetic of `domain.join_counts`: first the shards, then rows 0, each row once. Writes by key, never by ctid: a row that has
-- changed since the snapshot must not be missed. The expressions keep the planner from parked_state and flows_live. Indexes: joins_pkey, dependencies_needs, parked_pkey, flows_pkey.
-- takes: unreachable text, when_cancelled text, when_failed text, when_complete text
need_count as materialized (
  select group_id as id, coalesce(group_shard, 0::smallint) as shard, 1 as good, 0 as broken,
         (outcome = 'failure' and not may_fail)::int as bad
  from end_row where group_id is not null
  union all
  select d.job_id, d.shard, m.met::int, (not m.met)::int, 0
  from end_row e
  cross join lateral (
    select job_id, shard, condition from tidemill.dependencies d where d.needs_id = e.id offset 0) d
  cross join lateral (
    select d.condition in ('end', e.outcome) or (d.condition = 'not_success' and e.outcome <> 'success') as met) m
  union all
  select d.job_id, d.shard, g.failed, 0, 0
  from (select group_id, count(*)::int as failed from end_row
        where outcome = 'failure' and not may_fail and group_id is not null group by group_id) g
  cross join lateral (
    select job_id, shard from tidemill.dependencies d
    where d.needs_id = g.group_id and d.condition = 'first_failure' offset 0) d),
row_count as materialized (
  select id, shard, sum(good)::int as good, sum(broken)::int as broken, sum(bad)::int as bad
  from need_count group by id, shard order by id, shard),
leaf as (
  update tidemill.joins j set remaining = j.remaining - c.good, spare = j.spare - c.broken, bad = j.bad + c.bad
  from row_count c where c.shard > 0 and j.id = c.id and j.shard = c.shard
  returning j.id, j.remaining, j.spare, j.bad, c.good, c.broken),
root_count as materialized (
  select id, sum(good)::int as good, sum(broken)::int as broken, sum(bad)::int as bad
  from (select id, good, broken, bad from row_count where shard = 0
        union all select id, 1, 0, bad from leaf where remaining <= 0 and remaining + good > 0) c
  group by id order by id),
root as (
  update tidemill.joins j set remaining = j.remaining - c.good, spare = j.spare - c.broken, bad = j.bad + c.bad
  from root_count c where j.id = c.id and j.shard = 0
  returning j.id, j.remaining, j.spare, j.bad, c.good, c.broken),
filled as materialized (select id, bad from root where remaining <= 0 and remaining + good > 0),
unreachable as (
  insert into tidemill.unreachable_jobs(job_id, reason, created_at)
  select id, :unreachable, coalesce(:now::timestamptz, now())
  from (select id from leaf where spare < 0 and spare + broken >= 0
        union select id from root where spare < 0 and spare + broken >= 0 and remaining > 0) x
  order by id on conflict do nothing returning job_id),
-- include: free_jobs(jobs=array(select id from filled))
,
closed as (
  update tidemill.flows f set ended_at = coalesce(:now::timestamptz, now()),
    state = case when f.cancel_reason is not null then :when_cancelled when d.bad > 0 then :when_failed else :when_complete end
  from filled d where f.id = d.id and f.id = any(array(select id from filled)) and f.state || '' = 'running'
  returning f.id, f.state)

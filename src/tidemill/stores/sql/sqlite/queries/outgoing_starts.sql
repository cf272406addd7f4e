-- outgoing_starts: when ended jobs of a tenant with limits were claimed, also for executions that did not end them.
-- Index: history_finished, because a job that was claimed after an instant ended after it.
-- takes: tenant text, since timestamptz
-- gives: limits text, begun_at timestamptz, jobs int8
with ended as materialized (
  select h.id, h.limits, h.claimed_at from tidemill_history h
  where h.finished_at > :since and h.tenant = :tenant and h.limits is not null),
begun as (
  select limits, claimed_at as begun_at from ended
  union all
  select e.limits, x.claimed_at as begun_at from ended e cross join tidemill_executions x where x.job_id = e.id)
select limits, begun_at, count(*) as jobs from begun where begun_at > :since group by limits, begun_at

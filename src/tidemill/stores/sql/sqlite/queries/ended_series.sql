-- ended_series: ended jobs per step and state: the rollups and the journal of ends. Index: the primary key of the rollups, or
-- rollups_tenant.
-- takes: scope text, since timestamptz, until timestamptz, step interval, tenant text, queue text, task text
-- gives: at timestamptz, state text, jobs int8
with ended as (
  select at, state, jobs from tidemill_rollups
  where scope = :scope and at >= :since and at < :until
    and tenant = :tenant -- when tenant
    and queue = :queue -- when queue
    and task = :task -- when task
  union all
  select at, state, jobs from tidemill_ends
  where state is not null and at >= :since and at < :until
    and tenant = :tenant -- when tenant
    and queue = :queue -- when queue
    and task = :task -- when task
  )
select (at - :since) / :step * :step + :since as at, state, sum(jobs) as jobs from ended group by 1, 2 order by 1, 2

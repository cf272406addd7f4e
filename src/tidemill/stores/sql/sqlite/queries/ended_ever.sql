-- ended_ever: all ended jobs and executions that were counted, by task, queue and state. Index: the primary key of the rollups.
-- gives: scope text, task text, queue text, state text, jobs int8, retried int8
with ended as (
  select scope, task, queue, state, jobs, retried from tidemill_rollups where scope in ('ever', 'execution')
  union all
  select 'ever', task, queue, state, jobs, retried from tidemill_ends where state is not null
  union all
  select 'execution', task, queue, execution, jobs, retried from tidemill_ends where execution is not null)
select scope, task, queue, state, sum(jobs) as jobs, sum(retried) as retried
from ended group by 1, 2, 3, 4 order by 1, 2, 3, 4

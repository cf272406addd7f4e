-- times_ever: run times and waits of all ended jobs that were counted, by task. Index: the primary key of the times.
-- gives: task text, measure text, bucket int2, jobs int8, time int8
with ended as (
  select task, measure, bucket, jobs, time from tidemill_rollup_times where scope = 'ever'
  union all
  select e.task, m.measure, case when m.measure = 'run' then e.run_bucket else e.wait_bucket end, e.jobs,
         case when m.measure = 'run' then e.run_time else e.lag end
  from tidemill_ends e cross join (select 'run' as measure union all select 'wait') m
  where e.state is not null and e.run_bucket is not null)
select task, measure, bucket, sum(jobs) as jobs, sum(time) as time
from ended group by 1, 2, 3 order by 1, 2, 3

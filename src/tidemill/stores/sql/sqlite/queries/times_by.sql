-- times_by: run times and waits of ended jobs by group and bucket since an instant. Index: the primary key of the times, or
-- rollup_times_tenant.
-- takes: group text, since timestamptz, tenant text, names texts
-- gives: name text, measure text, bucket int2, jobs int8, time int8
with ended as (
  select tenant, task, queue, measure, bucket, jobs, time from tidemill_rollup_times
  where scope = 'detail' and at >= :since
    and tenant = :tenant -- when tenant
  union all
  select e.tenant, e.task, e.queue, m.measure, case when m.measure = 'run' then e.run_bucket else e.wait_bucket end, e.jobs,
         case when m.measure = 'run' then e.run_time else e.lag end
  from tidemill_ends e cross join (select 'run' as measure union all select 'wait') m
  where e.state is not null and e.run_bucket is not null and e.at >= :since
    and e.tenant = :tenant -- when tenant
  )
select case :group when 'task' then task when 'tenant' then tenant else queue end as name, measure, bucket, sum(jobs) as jobs, sum(time) as time
from ended
where true
  and case :group when 'task' then task when 'tenant' then tenant else queue end in (select value from json_each(:names)) -- when names
group by 1, 2, 3 order by 1, 2, 3

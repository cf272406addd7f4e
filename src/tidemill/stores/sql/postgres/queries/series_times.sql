-- series_times: run times and waits of ended jobs per step and bucket. Index: the primary key of the times, or
-- rollup_times_tenant.
-- takes: scope text, since timestamptz, until timestamptz, step interval, tenant text, queue text, task text
-- gives: at timestamptz, measure text, bucket int2, jobs int8, time int8
with ended as (
  select at, measure, bucket, jobs, time from tidemill.rollup_times
  where scope = :scope and at >= :since and at < :until
    and tenant = :tenant -- when tenant
    and queue = :queue -- when queue
    and task = :task -- when task
  union all
  select e.at, m.measure, case when m.measure = 'run' then e.run_bucket else e.wait_bucket end, e.jobs,
         case when m.measure = 'run' then e.run_time else e.lag end
  from tidemill.ends e cross join (values ('run'), ('wait')) m(measure)
  where e.state is not null and e.run_bucket is not null and e.at >= :since and e.at < :until
    and e.tenant = :tenant -- when tenant
    and e.queue = :queue -- when queue
    and e.task = :task -- when task
  )
select date_bin(:step::interval, at, :since) as at, measure, bucket, sum(jobs)::int8 as jobs, sum(time)::int8 as time
from ended group by 1, 2, 3 order by 1, 2, 3

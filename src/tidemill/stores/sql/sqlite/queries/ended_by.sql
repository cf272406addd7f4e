-- ended_by: ended jobs counted by group since an instant: the rollups and the journal of ends. Index: the primary key of the
-- rollups, or rollups_tenant.
-- takes: scope text, group text, since timestamptz, tenant text, limit int4
-- gives: name text, total int8, completed int8, failed int8, cancelled int8, retried int8
-- gives: attempts int8, most_attempts int4, ran int8, run_time int8, longest int8, lag int8
-- gives: longest_lag int8, tenants int8, last_at timestamptz
with ended as (
  select at, tenant, task, queue, worker, state, jobs, retried, attempts, most_attempts, ran, run_time, longest, lag, longest_lag, last_at
  from tidemill_rollups
  where scope = :scope and at >= :since
    and tenant = :tenant -- when tenant
    and state in ('failed', 'timed_out', 'dead_lettered') -- when failures
  union all
  select at, tenant, task, queue, coalesce(lower(hex(worker)), ''), state, jobs, retried, attempts,
         most_attempts, case when run_bucket is not null then jobs else 0 end, run_time, longest, lag, longest_lag, last_at
  from tidemill_ends
  where state is not null and at >= :since
    and tenant = :tenant -- when tenant
    and state in ('failed', 'timed_out', 'dead_lettered') -- when failures
  )
select case :group when 'task' then task when 'tenant' then tenant when 'queue' then queue when 'state' then state else worker end as name,
       sum(jobs) as total, coalesce(sum(jobs) filter (where state = 'completed'), 0) as completed,
       coalesce(sum(jobs) filter (where state in ('failed', 'timed_out', 'dead_lettered')), 0) as failed,
       coalesce(sum(jobs) filter (where state = 'cancelled'), 0) as cancelled, sum(retried) as retried,
       sum(attempts) as attempts, max(most_attempts) as most_attempts, sum(ran) as ran, sum(run_time) as run_time,
       max(longest) as longest, sum(lag) as lag, max(longest_lag) as longest_lag, count(distinct tenant) as tenants,
       max(last_at) as last_at
from ended
group by 1 order by total desc, name limit max(:limit, 0)

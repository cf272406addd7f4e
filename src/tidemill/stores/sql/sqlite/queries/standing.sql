-- standing: the number of jobs by state. Completed jobs are all ended jobs less those that ended otherwise: both by index.
-- gives: state text, jobs int8
with troubled as (
  select state, count(*) as jobs from tidemill_history indexed by tidemill_history_troubled_at where state <> 'completed' group by state)
select state, jobs
from (
  select 'pending' as state, count(*) as jobs from tidemill_ready
  union all
  select 'scheduled', count(*) from tidemill_scheduled
  union all
  select state, count(*) from tidemill_parked group by state
  union all
  select state, count(*) from tidemill_running group by state
  union all
  select state, jobs from troubled
  union all
  select 'completed', (select count(*) from tidemill_history) - (select coalesce(sum(jobs), 0) from troubled)) j
where jobs > 0

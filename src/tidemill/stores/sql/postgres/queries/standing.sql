-- standing: the number of jobs by state. Completed jobs are all ended jobs less those that ended otherwise: both by index.
-- gives: state text, jobs int8
with troubled as (
  select state, count(*) as jobs from tidemill.history where state <> 'completed' group by state)
select state, jobs
from (
  select 'pending' as state, count(*) as jobs from tidemill.ready
  union all
  select 'scheduled', count(*) from tidemill.scheduled
  union all
  select state, count(*) from tidemill.parked group by state
  union all
  select state, count(*) from tidemill.running group by state
  union all
  select state, jobs from troubled
  union all
  select 'completed', (select count(*) from tidemill.history) - (select coalesce(sum(jobs), 0) from troubled)::int8) j
where jobs > 0

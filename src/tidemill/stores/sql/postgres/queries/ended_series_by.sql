-- ended_series_by: ended and failed jobs per step of the largest groups: the rollups and the journal of ends. Index: the primary
-- key of the rollups, or rollups_tenant.
-- takes: scope text, group text, since timestamptz, until timestamptz, step interval, tenant text, limit int4
-- gives: at timestamptz, name text, total int8, failed int8
with ended as (
  select at, case :group::text when 'task' then task when 'tenant' then tenant when 'worker' then worker else queue end as name, state, jobs
  from tidemill.rollups
  where scope = :scope and at >= :since and at < :until
    and tenant = :tenant -- when tenant
  union all
  select at, case :group::text when 'task' then task when 'tenant' then tenant
         when 'worker' then coalesce(replace(worker::text, '-', ''), '') else queue end, state, jobs
  from tidemill.ends
  where state is not null and at >= :since and at < :until
    and tenant = :tenant -- when tenant
  ),
largest as (select name from ended group by name order by sum(jobs) desc, name limit :limit)
select date_bin(:step::interval, at, :since) as at, name, sum(jobs)::int8 as total,
       coalesce(sum(jobs) filter (where state in ('failed', 'timed_out', 'dead_lettered')), 0)::int8 as failed
from ended where name in (select name from largest) group by 1, 2 order by 1, 2

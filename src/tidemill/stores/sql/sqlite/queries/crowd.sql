-- crowd: the number of unfinished jobs of each task. Reads a bounded number of rows of each table, in any order.
-- takes: tenant text, look int8
-- gives: seen int8, task text, state text, jobs int8
with seen as materialized (
  select * from (select 1 as part, task, 'pending' as state, tenant from tidemill_ready limit max(:look, 0))
  union all
  select * from (select 2 as part, task, 'scheduled' as state, tenant from tidemill_scheduled limit max(:look, 0))
  union all
  select * from (select 3 as part, task, state, tenant from tidemill_parked limit max(:look, 0))
  union all
  select * from (select 4 as part, task, state, tenant from tidemill_running limit max(:look, 0)))
select a.seen, g.task, g.state, g.jobs
from (select coalesce(max(n), 0) as seen from (select count(*) as n from seen group by part)) a
left join (
  select task, state, count(*) as jobs from seen
  where true
    and tenant = :tenant -- when tenant
  group by task, state) g on true

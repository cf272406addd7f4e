-- crowd: the number of unfinished jobs of each task. Reads a bounded number of rows of each table, in any order.
-- takes: tenant text, look int8
-- gives: seen int8, task text, state text, jobs int8
with seen as materialized (
  (select 1 as part, task, 'pending' as state, tenant from tidemill.ready limit :look)
  union all
  (select 2 as part, task, 'scheduled' as state, tenant from tidemill.scheduled limit :look)
  union all
  (select 3 as part, task, state, tenant from tidemill.parked limit :look)
  union all
  (select 4 as part, task, state, tenant from tidemill.running limit :look))
select a.seen, g.task, g.state, g.jobs
from (select coalesce(max(n), 0) as seen from (select count(*) as n from seen group by part) p) a
left join (
  select task, state, count(*) as jobs from seen
  where true
    and tenant = :tenant -- when tenant
  group by task, state) g on true

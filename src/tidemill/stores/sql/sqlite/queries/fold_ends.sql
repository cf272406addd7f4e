-- fold_ends: merges rows of the journal of ends into the rollups and deletes them; returns their number.
-- A row is folded in the transaction that deletes it, so exactly once. A write transaction excludes other folds.
-- takes: limit int4
-- gives: rows int8
select count(*) as rows from (select seq from tidemill_ends order by seq limit :limit)
;
insert into tidemill_rollups as r(
  -- include: rollup_columns
  )
select s.scope, case when s.scope in ('ever', 'execution') then 0 else e.at end as at,
       case when s.scope in ('ever', 'execution') then 'ever' else 'minute' end as unit,
       case when s.scope in ('detail', 'worker') then e.tenant else '' end as tenant,
       case when s.scope in ('detail', 'ever', 'execution') then e.task else '' end as task,
       case when s.scope in ('detail', 'ever', 'execution') then e.queue else '' end as queue,
       case when s.scope = 'worker' then coalesce(lower(hex(e.worker)), '') else '' end as worker,
       case when s.scope = 'execution' then e.execution else e.state end as state,
       sum(e.jobs), sum(e.retried), sum(e.attempts), max(e.most_attempts),
       coalesce(sum(e.jobs) filter (where e.run_bucket is not null), 0), sum(e.run_time), max(e.longest), sum(e.lag), max(e.longest_lag),
       max(e.last_at)
from tidemill_ends e cross join (select 'detail' as scope union all select 'total' union all select 'worker' union all select 'ever' union all select 'execution') s
where case when s.scope = 'execution' then e.execution is not null else e.state is not null end
and e.seq <= (select max(seq) from (select seq from tidemill_ends order by seq limit :limit))
group by 1, 2, 3, 4, 5, 6, 7, 8 order by 1, 2, 3, 4, 5, 6, 7, 8
-- include: add_to_rollups
;
insert into tidemill_rollup_times as r(
  -- include: times_columns
  )
select s.scope, case when s.scope = 'ever' then 0 else e.at end as at,
       case when s.scope = 'ever' then 'ever' else 'minute' end as unit,
       case when s.scope = 'detail' then e.tenant else '' end as tenant,
       case when s.scope in ('detail', 'ever') then e.task else '' end as task,
       case when s.scope in ('detail', 'ever') then e.queue else '' end as queue, e.state, m.measure,
       case when m.measure = 'run' then e.run_bucket else e.wait_bucket end as bucket,
       sum(e.jobs), sum(case when m.measure = 'run' then e.run_time else e.lag end)
from tidemill_ends e cross join (select 'detail' as scope union all select 'total' union all select 'ever') s cross join (select 'run' as measure union all select 'wait') m
where e.state is not null and e.run_bucket is not null
and e.seq <= (select max(seq) from (select seq from tidemill_ends order by seq limit :limit))
group by 1, 2, 3, 4, 5, 6, 7, 8, 9 order by 1, 2, 3, 4, 5, 6, 7, 8, 9
-- include: add_to_times
;
delete from tidemill_ends where seq <= (select max(seq) from (select seq from tidemill_ends order by seq limit :limit))

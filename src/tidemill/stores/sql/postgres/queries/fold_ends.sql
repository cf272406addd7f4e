-- fold_ends: merges rows of the journal of ends into the rollups and deletes them; returns their number.
-- A row is folded in the transaction that deletes it, so exactly once; rows of open transactions stay for the next fold. One fold
-- at a time, by an advisory lock: two could wait for each other's rollups.
-- takes: limit int4
-- gives: rows int8
with turn as materialized (select pg_try_advisory_xact_lock(hashtext('tidemill.rollups')) as ours),
taken as (
  delete from tidemill.ends where ctid = any(array(
    select ctid from tidemill.ends where (select ours from turn) limit :limit))
  returning *),
folded as (
  insert into tidemill.rollups as r(
    -- include: rollup_columns
    )
  select s.scope, case when s.scope in ('ever', 'execution') then timestamptz 'epoch' else e.at end as at,
         case when s.scope in ('ever', 'execution') then 'ever' else 'minute' end as unit,
         case when s.scope in ('detail', 'worker') then e.tenant else '' end as tenant,
         case when s.scope in ('detail', 'ever', 'execution') then e.task else '' end as task,
         case when s.scope in ('detail', 'ever', 'execution') then e.queue else '' end as queue,
         case when s.scope = 'worker' then coalesce(replace(e.worker::text, '-', ''), '') else '' end as worker,
         case when s.scope = 'execution' then e.execution else e.state end as state,
         sum(e.jobs), sum(e.retried), sum(e.attempts), max(e.most_attempts),
         coalesce(sum(e.jobs) filter (where e.run_bucket is not null), 0), sum(e.run_time), max(e.longest), sum(e.lag), max(e.longest_lag),
         max(e.last_at)
  from taken e cross join (values ('detail'), ('total'), ('worker'), ('ever'), ('execution')) s(scope)
  where case when s.scope = 'execution' then e.execution is not null else e.state is not null end
  group by 1, 2, 3, 4, 5, 6, 7, 8 order by 1, 2, 3, 4, 5, 6, 7, 8
  -- include: add_to_rollups
  ),
timed as (
  insert into tidemill.rollup_times as r(
    -- include: times_columns
    )
  select s.scope, case when s.scope = 'ever' then timestamptz 'epoch' else e.at end as at,
         case when s.scope = 'ever' then 'ever' else 'minute' end as unit,
         case when s.scope = 'detail' then e.tenant else '' end as tenant,
         case when s.scope in ('detail', 'ever') then e.task else '' end as task,
         case when s.scope in ('detail', 'ever') then e.queue else '' end as queue, e.state, m.measure,
         case when m.measure = 'run' then e.run_bucket else e.wait_bucket end as bucket,
         sum(e.jobs), sum(case when m.measure = 'run' then e.run_time else e.lag end)
  from taken e cross join (values ('detail'), ('total'), ('ever')) s(scope) cross join (values ('run'), ('wait')) m(measure)
  where e.state is not null and e.run_bucket is not null
  group by 1, 2, 3, 4, 5, 6, 7, 8, 9 order by 1, 2, 3, 4, 5, 6, 7, 8, 9
  -- include: add_to_times
  )
select count(*) as rows from taken

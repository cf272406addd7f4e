-- compact_rollups: merges the oldest rollups of a unit into one slot of a longer unit; returns their number.
-- Indexes: rollups_unit and rollup_times_unit. One at a time, like `fold_ends`.
-- takes: unit text, into text, step interval, before timestamptz
-- gives: rows int8
with turn as materialized (select pg_try_advisory_xact_lock(hashtext('tidemill.rollups')) as ours),
bound as materialized (
  select least(:before::timestamptz, date_bin(:step::interval, min(at), timestamptz 'epoch') + :step::interval) as at
  from tidemill.rollups where unit = :unit and (select ours from turn)
  having min(at) is not null),
taken as (
  delete from tidemill.rollups where unit = :unit and at < (select at from bound) returning *),
times as (
  delete from tidemill.rollup_times where unit = :unit and at < (select at from bound) returning *),
merged as (
  insert into tidemill.rollups as r(
    -- include: rollup_columns
    )
  select o.scope, date_bin(:step::interval, o.at, timestamptz 'epoch'), :into::text, o.tenant, o.task, o.queue, o.worker, o.state,
         sum(o.jobs), sum(o.retried), sum(o.attempts), max(o.most_attempts), sum(o.ran), sum(o.run_time), max(o.longest), sum(o.lag),
         max(o.longest_lag), max(o.last_at)
  from taken o
  group by 1, 2, 4, 5, 6, 7, 8 order by 1, 2, 4, 5, 6, 7, 8
  -- include: add_to_rollups
  ),
merged_times as (
  insert into tidemill.rollup_times as r(
    -- include: times_columns
    )
  select o.scope, date_bin(:step::interval, o.at, timestamptz 'epoch'), :into::text, o.tenant, o.task, o.queue, o.state, o.measure, o.bucket,
         sum(o.jobs), sum(o.time)
  from times o
  group by 1, 2, 4, 5, 6, 7, 8, 9 order by 1, 2, 4, 5, 6, 7, 8, 9
  -- include: add_to_times
  )
select count(*) as rows from taken

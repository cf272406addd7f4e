-- compact_rollups: merges the oldest rollups of a unit into one slot of a longer unit; returns their number.
-- Indexes: rollups_unit and rollup_times_unit. The times come first: the rollups have the bound.
-- takes: unit text, into text, step interval, before timestamptz
-- gives: rows int8
select count(*) as rows from tidemill_rollups where unit = :unit and at <
  -- include: compaction_bound
;
insert into tidemill_rollup_times as r(
  -- include: times_columns
  )
select o.scope, o.at / :step * :step, :into, o.tenant, o.task, o.queue, o.state, o.measure, o.bucket, sum(o.jobs), sum(o.time)
from tidemill_rollup_times o where o.unit = :unit and o.at <
  -- include: compaction_bound
group by 1, 2, 3, 4, 5, 6, 7, 8, 9
-- include: add_to_times
;
delete from tidemill_rollup_times where unit = :unit and at <
  -- include: compaction_bound
;
insert into tidemill_rollups as r(
  -- include: rollup_columns
  )
select o.scope, o.at / :step * :step, :into, o.tenant, o.task, o.queue, o.worker, o.state,
       sum(o.jobs), sum(o.retried), sum(o.attempts), max(o.most_attempts), sum(o.ran), sum(o.run_time), max(o.longest), sum(o.lag),
       max(o.longest_lag), max(o.last_at)
from tidemill_rollups o where o.unit = :unit and o.at <
  -- include: compaction_bound
group by 1, 2, 3, 4, 5, 6, 7, 8
-- include: add_to_rollups
;
delete from tidemill_rollups where unit = :unit and at <
  -- include: compaction_bound

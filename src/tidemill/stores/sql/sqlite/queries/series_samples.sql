-- series_samples: run times and lags of the latest jobs of each step. Index: history_finished, backwards in each step.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, samples int8
-- gives: at timestamptz, run_time interval, lag interval
with recursive s(at) as (
  select :since
  union all
  select at + :step from s where at + :step < :until)
select s.at, max(h.finished_at - h.started_at, 0) as run_time, max(h.started_at - h.run_at, 0) as lag
from s cross join tidemill_history h on h.rowid in (
  select n.rowid from tidemill_history n indexed by tidemill_history_finished
  where n.finished_at >= s.at and n.finished_at < s.at + :step
  order by n.finished_at desc, n.id desc limit max(:samples, 0))
where h.started_at is not null
  and h.tenant = :tenant -- when tenant
order by s.at

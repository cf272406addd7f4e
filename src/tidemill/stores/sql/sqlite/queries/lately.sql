-- lately: the most recently created ended jobs of each task. Index: history_task, backwards for each task.
-- takes: tasks texts, tenant text, per_task int8
-- gives: task text, id uuid, state text, finished_at timestamptz, run_time interval, lag interval
select h.task, h.id, h.state, h.finished_at, case when h.worker is not null then max(h.finished_at - h.started_at, 0) end as run_time,
       case when h.worker is not null then max(h.started_at - h.run_at, 0) end as lag
from json_each(:tasks) t cross join tidemill_history h on h.rowid in (
  select n.rowid from tidemill_history n indexed by tidemill_history_task
  where n.task = t.value
  order by n.id desc limit max(:per_task, 0))
where true
  and h.tenant = :tenant -- when tenant
order by h.task, h.id desc

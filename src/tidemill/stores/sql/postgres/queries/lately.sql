-- lately: the most recently created ended jobs of each task. Index: history_task, backwards for each task.
-- takes: tasks texts, tenant text, per_task int8
-- gives: task text, id uuid, state text, finished_at timestamptz, run_time interval, lag interval
select t.task, h.id, h.state, h.finished_at, greatest(h.finished_at, h.started_at) - h.started_at as run_time,
       greatest(h.started_at, h.run_at) - h.run_at as lag
from unnest(:tasks::text[]) t(task) cross join lateral (
  select n.id, n.tenant, n.state, n.finished_at, case when n.worker is not null then n.started_at end as started_at,
         case when n.started_at is not null and n.worker is not null then n.run_at end as run_at
  from tidemill.history n
  where n.task = t.task
  order by n.id desc limit :per_task) h
where true
  and h.tenant = :tenant -- when tenant
order by t.task collate "C", h.id desc

-- archivable: ended jobs that are old enough, the longest ended first. Index: history_finished, by name, because the planner would
-- consider a list of tasks more selective and sort all matching rows.
-- takes: now timestamptz, max_age interval, states texts, tasks texts, limit int4
select
  -- include: job_row(args=args; result=result)
from tidemill_history indexed by tidemill_history_finished
where finished_at <= :now - :max_age and state in (select value from json_each(:states))
  and task in (select value from json_each(:tasks)) -- when tasks
order by finished_at, id limit :limit

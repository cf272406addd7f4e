-- archivable: ended jobs of a selection, the longest ended first. Index: history_finished, by name, because the planner would
-- consider a list of tasks more selective and sort all matching rows.
-- takes: limit int4
-- include: other_rules
select
  -- include: job_row(args=args; result=result)
from tidemill_history indexed by tidemill_history_finished
where
  -- include: governed
order by finished_at, id limit :limit

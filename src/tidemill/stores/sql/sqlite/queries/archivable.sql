-- archivable: ended jobs of a selection, the longest ended first. Index: history_finished, by name, because the planner would
-- consider a list of tasks more selective and sort all matching rows.
-- takes: limit int4
-- include: other_rules
select
  -- include: job_row(args=args; result=result)
from tidemill_history h indexed by tidemill_history_finished
where
  -- include: governed
  and not (h.tied and (
    -- include: needed_job
    ))
  and not (h.tied and exists ( -- when whole
    select 1 from tidemill_details t cross join tidemill_flows f on f.id = t.flow_id where t.id = h.id)) -- when whole
order by finished_at, id limit :limit

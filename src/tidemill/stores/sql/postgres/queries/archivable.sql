-- archivable: ended jobs of a selection, the longest ended first. Index: history_finished.
-- takes: limit int4
-- include: other_rules
select
  -- include: job_row(args=args; result=result)
from tidemill.history h
where
  -- include: governed
  and not (h.tied and (
    -- include: needed_job
    ))
  and not (h.tied and exists ( -- when whole
    select from tidemill.details t join tidemill.flows f on f.id = t.flow_id where t.id = h.id)) -- when whole
order by finished_at, id limit :limit

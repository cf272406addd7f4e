-- archivable: ended jobs of a selection, the longest ended first. Index: history_finished.
-- takes: limit int4
-- include: other_rules
select
  -- include: job_row(args=args; result=result)
from tidemill.history
where
  -- include: governed
order by finished_at, id limit :limit

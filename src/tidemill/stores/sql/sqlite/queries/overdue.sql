-- overdue: running jobs past their timeout, the longest overdue first. Reads all running jobs, which are few.
-- takes: now timestamptz, limit int4
select
  -- include: held_row
from tidemill_running r
where r.state = 'running' and r.started_at + r.timeout <= :now
order by r.started_at + r.timeout, r.id limit max(:limit, 0)

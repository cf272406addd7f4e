-- backlogs: the pending jobs of each task that is not among the served ones, the task that has waited longest first.
-- Reads all pending jobs, so one process asks for it once a minute.
-- takes: tenant text, served texts
-- gives: task text, pending int8, oldest_at timestamptz
select task, count(*) as pending, min(run_at) as oldest_at
from tidemill_ready
where task not in (select value from json_each(:served))
  and tenant = :tenant -- when tenant
group by task order by oldest_at, task

-- search_logs: one page of the log lines of all jobs, newest first. Index: logs_at, or the primary key for one job.
-- The search ends at the line `floor`, which `searched_logs` finds. `offset 0` makes the job a lookup per line.
-- takes: levels texts, job_id uuid, since timestamptz, until timestamptz, before_at timestamptz, before_position int8
-- takes: floor_at timestamptz, floor_position int8, text text, tasks texts, tenant text, limit int4
-- gives: position int8, job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text
-- gives: duration interval, task text, queue text, tenant text
select l.position, l.job_id, l.number, l.at, l.level, l.stage, l.message, l.details, l.duration, j.task, j.queue, j.tenant
from tidemill.logs l
cross join lateral (select o.task, o.queue, o.tenant from tidemill.jobs o where o.id = l.job_id offset 0) j
where true
-- include: log_conditions
  and (l.at, l.position) >= (:floor_at, :floor_position) -- when floor_at
  and strpos(lower(l.message collate "C"), :text) > 0 -- when text
  and j.task = any(:tasks::text[]) -- when tasks
  and j.tenant = :tenant -- when tenant
order by l.at desc, l.position desc
limit :limit

-- search_logs: one page of the log lines of all jobs, newest first. Index: logs_at, or logs_job for one job.
-- The search ends at the line `floor`, which `searched_logs` finds. Subqueries look up the job of each line, because SQLite
-- would read the whole view for a join.
-- takes: levels texts, job_id uuid, since timestamptz, until timestamptz, before_at timestamptz, before_position int8
-- takes: floor_at timestamptz, floor_position int8, text text, tasks texts, tenant text, limit int4
-- gives: position int8, job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text
-- gives: duration interval, task text, queue text, tenant text
select l.position, l.job_id, l.number, l.at, l.level, l.stage, l.message, l.details, l.duration,
       (select o.task from tidemill_jobs o where o.id = l.job_id) as task,
       (select o.queue from tidemill_jobs o where o.id = l.job_id) as queue,
       (select o.tenant from tidemill_jobs o where o.id = l.job_id) as tenant
from tidemill_logs l
where true
-- include: log_conditions
  and (l.at, l.position) >= (:floor_at, :floor_position) -- when floor_at
  and instr(lower(l.message), :text) > 0 -- when text
  and exists (select 1 from tidemill_jobs o where o.id = l.job_id
              and o.task in (select value from json_each(:tasks)) -- when tasks
              and o.tenant = :tenant -- when tenant
             )
order by l.at desc, l.position desc
limit :limit

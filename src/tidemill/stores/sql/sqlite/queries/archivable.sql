-- archivable: ended jobs that are old enough, the longest ended first. Index: history_finished, by name, because the planner would
-- consider a list of tasks more selective and sort all matching rows.
-- takes: now timestamptz, max_age interval, states texts, tasks texts, limit int4
-- gives: id uuid, tenant text, queue text, task text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval
-- gives: unique_key text, limits text, detailed bool, reason text, args text, state text, execution text, worker uuid
-- gives: claimed_at timestamptz, started_at timestamptz, finished_at timestamptz, cancel_reason text, progress text
-- gives: result text, error text
select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
       unique_key, limits, detailed, reason, args, state, execution, worker, claimed_at, started_at, finished_at,
       cancel_reason, progress, result, error
from tidemill_history indexed by tidemill_history_finished
where finished_at <= :now - :max_age and state in (select value from json_each(:states))
  and task in (select value from json_each(:tasks)) -- when tasks
order by finished_at, id limit :limit

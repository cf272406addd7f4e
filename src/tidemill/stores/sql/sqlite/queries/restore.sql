-- restore: inserts ended jobs with their details, each only if no live job has its id; returns the inserted ids.
-- Collects the new ids and their details in temporary tables.
-- items: id uuid, tenant text, queue text, task text, priority int2, attempt int4, max_attempts int4, crashes int4, token int8
-- items: run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, unique_key text, limits text
-- items: details text, reason text, args text, state text, execution text, worker uuid, claimed_at timestamptz
-- items: started_at timestamptz, finished_at timestamptz, cancel_reason text, progress text, result text, error text
-- gives: id uuid
delete from temp.tidemill_restored
;
insert into temp.tidemill_restored(id, tenant, details)
select :id, :tenant, :details
where not exists (select 1 from tidemill_ready where id = :id)
  and not exists (select 1 from tidemill_scheduled where id = :id)
  and not exists (select 1 from tidemill_parked where id = :id)
  and not exists (select 1 from tidemill_running where id = :id)
  and not exists (select 1 from tidemill_history where id = :id)
;
insert into tidemill_history(
    id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
    unique_key, limits, reason, args, state, execution, worker, claimed_at, started_at, finished_at, cancel_reason,
    progress, result, error, detailed)
select
    :id, :tenant, :queue, :task, :priority, :attempt, :max_attempts, :crashes, :token, :run_at, :created_at,
    :expires_at, :timeout, :unique_key, :limits, :reason, :args, :state, :execution, :worker, :claimed_at,
    :started_at, :finished_at, :cancel_reason, :progress, :result, :error, details is not null
from temp.tidemill_restored where id = :id
;
-- include: details_of(jobs=temp.tidemill_restored where true)
;
select id from temp.tidemill_restored

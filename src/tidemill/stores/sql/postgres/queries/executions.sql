-- executions: the executions that did not end their job, by job and number.
-- takes: ids uuids
-- gives: job_id uuid, number int8, attempt int4, state text, worker uuid, claimed_at timestamptz, started_at timestamptz
-- gives: finished_at timestamptz, error text, reason text
select job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason
from tidemill.executions where job_id = any(:ids::uuid[]) order by job_id, number

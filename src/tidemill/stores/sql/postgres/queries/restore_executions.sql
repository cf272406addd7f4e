-- restore_executions: inserts the executions of restored jobs that did not end them.
-- items: job_id uuid, number int8, attempt int4, state text, worker uuid, claimed_at timestamptz, started_at timestamptz
-- items: finished_at timestamptz, error text, reason text
insert into tidemill.executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
select x.job_id, x.number, x.attempt, x.state, x.worker, x.claimed_at, x.started_at, x.finished_at, x.error, x.reason
from unnest(:job_id::uuid[], :number::bigint[], :attempt::int[], :state::text[], :worker::uuid[],
            :claimed_at::timestamptz[], :started_at::timestamptz[], :finished_at::timestamptz[], :error::text[],
            :reason::text[]) with ordinality
     as x(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason, n)
order by x.n

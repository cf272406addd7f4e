-- waiting_events: events of a subscription that are due, without those behind a delayed event of their job.
-- Indexes: job_events_subscription, job_events_delayed.
-- takes: now timestamptz, subscription text, limit int4
-- gives: seq int8, subscription text, name text, at timestamptz, job_id uuid, task text, tenant text, state text, data text
-- gives: attempts int4
select e.seq, e.subscription, e.name, e.at, e.job_id, e.task, e.tenant, e.state, e.data, e.attempts
from tidemill_job_events e
where e.subscription = :subscription and e.due_at <= :now
  and not exists (
    select 1 from tidemill_job_events d
    where d.subscription = e.subscription and d.job_id = e.job_id and d.attempts > 0 and d.due_at > :now and d.seq < e.seq)
order by e.seq
limit :limit

-- released_jobs: moves the jobs of a finish that do not end to their next table, and records their executions.
insert into tidemill_executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
select r.id, r.token, r.attempt, x.execution, r.worker, r.claimed_at,
       coalesce(:now - cast(round(x.started_ago * 1000000) as integer), r.started_at),
       :now - cast(round(x.ended_ago * 1000000) as integer), x.error, x.why
from
-- include: finishing
where not h.ends
;
insert into tidemill_ready(
  -- include: waiting_columns
  , reason)
select
  -- include: job_columns(prefix=r)
  , r.attempt - x.refund, r.crashes + x.crashed, r.token, :now + x.delay, r.unique_key, 0, x.why
from
-- include: finishing
where h.new_state = 'pending' order by x.n
;
insert into tidemill_scheduled(
  -- include: waiting_columns
  , reason)
select
  -- include: job_columns(prefix=r)
  , r.attempt - x.refund, r.crashes + x.crashed, r.token, :now + x.delay, r.unique_key, 0, x.why
from
-- include: finishing
where h.new_state = 'scheduled'
;
insert into tidemill_parked(
  -- include: waiting_columns
  , reason, state, wakes, result)
select
  -- include: job_columns(prefix=r)
  , iif(x.execution = 'suspended', 0, r.attempt - x.refund), iif(x.execution = 'suspended', 0, r.crashes + x.crashed),
  r.token, :now + x.delay, r.unique_key, 0, x.why,
  h.new_state, h.new_state = 'waiting' and x.delay > 0, case h.new_state when 'review_needed' then x.result end
from
-- include: finishing
where h.new_state in ('waiting', 'review_needed')
;

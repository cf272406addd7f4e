-- move: transitions of jobs that no worker holds, each only from an expected state; returns the changed ids.
-- Locks jobs in the order of their ids, then keys in theirs. The last execution of a reopened job becomes a separate row; an ending
-- job releases its unique key and is counted in the journal of ends. A reviewed job that ends keeps the start of the execution
-- that requested the review.
-- takes: now timestamptz
-- items: id uuid, tenant text, expect text, to_state text, reason text, delay interval, restart bool, result text
-- items: lets_go bool
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :tenant::text[], :expect::text[], :to_state::text[], :reason::text[], :delay::interval[],
                       :restart::boolean[], :result::text[], :lets_go::boolean[]) with ordinality
    as x(id, tenant, expect, to_state, why, delay, restart, result, lets_go, n)
  order by id),
from_ready as (
  -- include: move_from(table=ready; state='pending'; old_result=null)
from_scheduled as (
  -- include: move_from(table=scheduled; state='scheduled'; old_result=null)
from_parked as (
  -- include: move_from(table=parked; state=j.state; old_result=j.result)
from_history as (
  delete from tidemill.history j using item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and j.state = any(string_to_array(x.expect, ','))
  returning j.*, x.to_state, x.why, x.delay, x.restart, x.result as new_result, x.n),
noted as (
  insert into tidemill.executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
  select id, token, attempt, execution, worker, claimed_at, started_at, finished_at, error, reason
  from from_history where execution is not null),
waits_gone as (delete from tidemill.waits where job_id = any(array(select id from from_parked))),
moved as materialized (
  select * from from_ready union all select * from from_scheduled union all select * from from_parked union all
  select
    -- include: waiting_columns
    , state, null, to_state, why, delay, restart, new_result, n
  from from_history),
unreachable_gone as (delete from tidemill.unreachable_jobs where job_id = any(array(select id from moved))),
into_ready as (
  insert into tidemill.ready(
    -- include: waiting_columns
    , reason)
  select
    -- include: job_columns
    , case when not restart then attempt else 0 end, case when not restart then crashes else 0 end, token,
    coalesce(:now::timestamptz, now()) + delay, unique_key, until_claimed, why
  from moved where to_state = 'pending' order by n),
into_scheduled as (
  insert into tidemill.scheduled(
    -- include: waiting_columns
    , reason)
  select
    -- include: job_columns
    , case when not restart then attempt else 0 end, case when not restart then crashes else 0 end, token,
    coalesce(:now::timestamptz, now()) + delay, unique_key, until_claimed, why
  from moved where to_state = 'scheduled'),
into_parked as (
  insert into tidemill.parked(
    -- include: waiting_columns
    , reason, state, wakes)
  select
    -- include: job_columns
    , case when not restart then attempt else 0 end, case when not restart then crashes else 0 end, token,
    coalesce(:now::timestamptz, now()) + delay, unique_key, until_claimed, why, 'waiting', false
  from moved where to_state = 'waiting'),
into_history as (
  insert into tidemill.history(
    -- include: waiting_columns
    , reason, state, started_at, finished_at, result)
  select
    -- include: job_columns
    , case when not restart then attempt else 0 end, case when not restart then crashes else 0 end, token,
    run_at, unique_key, until_claimed, why, to_state,
    (select e.started_at from tidemill.executions e where e.job_id = moved.id and e.number = moved.token and e.state = 'review'
       and moved.old_state = 'review_needed'),
    coalesce(:now::timestamptz, now()), coalesce(result, old_result)
  from moved where to_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')
  returning tenant, task, queue, worker, state, execution, attempt, run_at, started_at, finished_at),
ending as (select * from into_history),
-- include: journal_ends
-- include: release_keys(jobs=moved where to_state not in ('pending', 'scheduled', 'waiting') and unique_key is not null; lets_go=g.id = any(array(select id from item where lets_go)))
select id from moved

-- move: transitions of jobs that no worker holds, each only from an expected state; returns the changed ids.
-- Locks jobs in the order of their ids, then keys in theirs. The last execution of a reopened job becomes a separate row; an ending
-- job releases its unique key.
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
  delete from tidemill.ready j using item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and 'pending' = any(string_to_array(x.expect, ','))
  returning j.id, j.tenant, j.queue, j.task, j.priority, j.attempt, j.max_attempts, j.crashes, j.token, j.run_at, j.created_at,
            j.expires_at, j.timeout, j.unique_key, j.until_claimed as until_claimed, j.limits, j.detailed, j.args,
            null::text as old_result, x.to_state, x.why, x.delay, x.restart, x.result, x.n),
from_scheduled as (
  delete from tidemill.scheduled j using item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and 'scheduled' = any(string_to_array(x.expect, ','))
  returning j.id, j.tenant, j.queue, j.task, j.priority, j.attempt, j.max_attempts, j.crashes, j.token, j.run_at, j.created_at,
            j.expires_at, j.timeout, j.unique_key, j.until_claimed as until_claimed, j.limits, j.detailed, j.args,
            null::text as old_result, x.to_state, x.why, x.delay, x.restart, x.result, x.n),
from_parked as (
  delete from tidemill.parked j using item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and j.state = any(string_to_array(x.expect, ','))
  returning j.id, j.tenant, j.queue, j.task, j.priority, j.attempt, j.max_attempts, j.crashes, j.token, j.run_at, j.created_at,
            j.expires_at, j.timeout, j.unique_key, j.until_claimed as until_claimed, j.limits, j.detailed, j.args,
            j.result as old_result, x.to_state, x.why, x.delay, x.restart, x.result, x.n),
from_history as (
  delete from tidemill.history j using item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and j.state = any(string_to_array(x.expect, ','))
  returning j.*, x.to_state, x.why, x.delay, x.restart, x.result as new_result, x.n),
noted as (
  insert into tidemill.executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
  select id, token, attempt, execution, worker, claimed_at, started_at, finished_at, error, reason
  from from_history where execution is not null),
moved as materialized (
  select * from from_ready union all select * from from_scheduled union all select * from from_parked union all
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at,
         timeout, unique_key, until_claimed, limits, detailed, args, null, to_state, why, delay, restart, new_result, n
  from from_history),
into_ready as (
  insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
  select id, tenant, queue, task, priority, case when not restart then attempt else 0 end, max_attempts,
         case when not restart then crashes else 0 end, token, coalesce(:now::timestamptz, now()) + delay, created_at, expires_at,
         timeout, unique_key, until_claimed, limits, detailed, why, args
  from moved where to_state = 'pending' order by n),
into_scheduled as (
  insert into tidemill.scheduled(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at,
                                 created_at, expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
  select id, tenant, queue, task, priority, case when not restart then attempt else 0 end, max_attempts,
         case when not restart then crashes else 0 end, token, coalesce(:now::timestamptz, now()) + delay, created_at, expires_at,
         timeout, unique_key, until_claimed, limits, detailed, why, args
  from moved where to_state = 'scheduled'),
into_history as (
  insert into tidemill.history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args, state, finished_at,
                               result)
  select id, tenant, queue, task, priority, case when not restart then attempt else 0 end, max_attempts,
         case when not restart then crashes else 0 end, token, run_at, created_at, expires_at, timeout,
         unique_key, until_claimed, limits, detailed, why, args, to_state, coalesce(:now::timestamptz, now()), coalesce(result, old_result)
  from moved where to_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')),
keyed as materialized (
  select u.place, u.stays
  from (select tenant, unique_key, id from moved where to_state not in ('pending', 'scheduled') and unique_key is not null
        order by tenant collate "C", unique_key collate "C") g
  cross join lateral (
    select ctid as place, coalesce(window_ends_at > coalesce(:now::timestamptz, now()), false)
                          and not g.id = any(array(select id from item where lets_go)) as stays
    from tidemill.uniques where tenant = g.tenant and key = g.unique_key and job_id = g.id for update) u),
let_go as (delete from tidemill.uniques where ctid = any(array(select place from keyed where not stays))),
dimmed as (update tidemill.uniques set live = false where ctid = any(array(select place from keyed where stays)))
select id from moved

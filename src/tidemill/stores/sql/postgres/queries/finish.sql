-- finish: applies every transition of a held job, keyed by id, token and worker; returns the lost ids.
-- Ended jobs move to history with their last execution; for released jobs that execution becomes a separate row. A released job with
-- a cancel request ends as cancelled instead. Locks jobs in the order of their ids, then the keys they release in key order.
-- If jobs count against limits, these are released: their names are locked in their order, waiting.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- takes: now timestamptz
-- items: id uuid, token int8, worker uuid, to_state text, execution text, reason text, delay interval, refund bool, crashed bool
-- items: result text, error text, started_ago float8, ended_ago float8
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :token::bigint[], :worker::uuid[], :to_state::text[], :execution::text[], :reason::text[],
                       :delay::interval[], :refund::boolean[], :crashed::boolean[], :result::text[], :error::text[],
                       :started_ago::float8[], :ended_ago::float8[]) with ordinality
    as x(id, token, worker, to_state, execution, why, delay, refund, crashed, result, error, started_ago, ended_ago, n)
  order by id),
gone as (
  delete from tidemill.running r using item x where r.id = x.id and r.token = x.token and r.worker is not distinct from x.worker
  returning r.*, x.to_state, x.execution, x.why, x.delay, x.refund, x.crashed, x.result, x.error, x.n,
            coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => x.started_ago), r.started_at) as began_at,
            coalesce(:now::timestamptz, now()) - make_interval(secs => x.ended_ago) as finished_at,
            x.to_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')
              or r.cancel_reason is not null and x.to_state in ('pending', 'scheduled', 'waiting') as ends),
ended as (
  insert into tidemill.history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, limits, detailed, reason, args, state, execution, worker,
                               claimed_at, started_at, finished_at, cancel_reason, progress, result, error)
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes + crashed::int, token, run_at, created_at,
         expires_at, timeout, unique_key, limits, detailed,
         case when to_state in ('pending', 'scheduled', 'waiting') then cancel_reason else why end, args,
         case when to_state in ('pending', 'scheduled', 'waiting') then 'cancelled' else to_state end, execution, worker,
         claimed_at, began_at, finished_at, cancel_reason, progress, result, error
  from gone where ends),
noted as (
  insert into tidemill.executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
  select id, token, attempt, execution, worker, claimed_at, began_at, finished_at, error, why from gone where not ends),
again as (
  insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
  select id, tenant, queue, task, priority, attempt - refund::int, max_attempts, crashes + crashed::int, token,
         coalesce(:now::timestamptz, now()) + delay, created_at, expires_at, timeout, unique_key, false, limits, detailed, why,
         args
  from gone where not ends and to_state = 'pending' order by n),
later as (
  insert into tidemill.scheduled(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at,
                                 created_at, expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
  select id, tenant, queue, task, priority, attempt - refund::int, max_attempts, crashes + crashed::int, token,
         coalesce(:now::timestamptz, now()) + delay, created_at, expires_at, timeout, unique_key, false, limits, detailed, why,
         args
  from gone where not ends and to_state = 'scheduled'),
aside as (
  insert into tidemill.parked(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                              expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args, state, wakes,
                              result)
  select id, tenant, queue, task, priority, attempt - refund::int, max_attempts, crashes + crashed::int, token,
         coalesce(:now::timestamptz, now()) + delay, created_at, expires_at, timeout, unique_key, false, limits, detailed, why,
         args, to_state, to_state = 'waiting' and delay > interval '0', case to_state when 'review_needed' then result end
  from gone where not ends and to_state in ('waiting', 'review_needed')),
keyed as materialized (
  select u.place, u.stays
  from (select tenant, unique_key, id from gone where ends and unique_key is not null
        order by tenant collate "C", unique_key collate "C") g
  cross join lateral (
    select ctid as place, coalesce(window_ends_at > coalesce(:now::timestamptz, now()), false) as stays from tidemill.uniques
    where tenant = g.tenant and key = g.unique_key and job_id = g.id for update) u),
let_go as (delete from tidemill.uniques where ctid = any(array(select place from keyed where not stays))),
dimmed as (update tidemill.uniques set live = false where ctid = any(array(select place from keyed where stays)))
, -- when counted
returned as materialized ( -- when counted
  select n.name, count(*)::int as jobs -- when counted
  from gone g cross join lateral (select distinct x.name from jsonb_array_elements_text(g.limits::jsonb) as x(name)) n -- when counted
  group by n.name), -- when counted
counter as materialized ( -- when counted
  select u.name from tidemill.uses u where u.name = any(array(select name from returned)) -- when counted
  order by u.name for update), -- when counted
one_back as ( -- when counted
  update tidemill.uses u set used = greatest(u.used - 1, 0), changed_at = coalesce(:now::timestamptz, now()) -- when counted
  where u.name = any(array(select r.name from returned r join counter c on c.name = r.name where r.jobs = 1))), -- when counted
more_back as ( -- when counted
  update tidemill.uses u set used = greatest(u.used - r.jobs, 0), changed_at = coalesce(:now::timestamptz, now()) -- when counted
  from returned r -- when counted
  where u.name = any(array(select r.name from returned r join counter c on c.name = r.name where r.jobs > 1)) -- when counted
    and r.name = u.name) -- when counted
select id from item except select id from gone

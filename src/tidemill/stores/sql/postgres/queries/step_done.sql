-- step_done: as `step`, for a batch of jobs that all succeeded: their common values are not sent for each of them.
-- PostgreSQL only, like `step`.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- takes: now timestamptz, worker uuid, state text, limit int4, tasks texts
-- takes: lane_queue texts, lane_tenant texts, lane_priority int2s, lane_low int8s, lane_quota int4s
-- items: id uuid, token int8, result text, started_ago float8, ended_ago float8
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, seq int8
-- gives: lost uuid
with item as materialized (
  select x.*, :worker::uuid as worker
  from unnest(:id::uuid[], :token::bigint[], :result::text[], :started_ago::float8[], :ended_ago::float8[])
    as x(id, token, result, started_ago, ended_ago)
  order by id),
gone as (
  delete from tidemill.running r using item x where r.id = x.id and r.token = x.token and r.worker is not distinct from x.worker
  returning r.*, x.result, x.started_ago, x.ended_ago),
ended as (
  insert into tidemill.history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, limits, detailed, args, state, execution, worker,
                               claimed_at, started_at, finished_at, cancel_reason, progress, result)
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
         unique_key, limits, detailed, args, 'completed', 'succeeded', worker, claimed_at,
         coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => started_ago), started_at),
         coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago), cancel_reason, progress, result
  from gone),
got as (
  delete from tidemill.ready where ctid = any(array(
    select r.ctid
    from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_low::bigint[],
                :lane_quota::int[]) as l(queue, tenant, priority, low, quota)
    cross join lateral (
      select ctid from tidemill.ready
      where queue = l.queue and tenant = l.tenant and priority = l.priority and gate = '' and seq >= l.low
        and task = any(:tasks::text[]) -- when tasks
      order by seq limit l.quota for update skip locked) r
    where exists (
      select from tidemill.workers w
      where w.id = :worker::uuid and w.state <> 'stopped' and w.expires_at > coalesce(:now::timestamptz, now()))
    limit :limit))
  returning *),
begun as (
  insert into tidemill.running(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, limits, detailed, args, state, worker, claimed_at, started_at)
  select id, tenant, queue, task, priority, attempt + 1, max_attempts, crashes, token + 1, run_at, created_at, expires_at,
         timeout, case when not until_claimed then unique_key end, limits, detailed, args,
         case crashes when 0 then :state::text else 'claimed' end, :worker::uuid, coalesce(:now::timestamptz, now()),
         case when crashes = 0 and :state::text = 'running' then coalesce(:now::timestamptz, now()) end
  from got),
keyed as materialized (
  select u.place, u.stays
  from (select tenant, unique_key, id from got where until_claimed
        order by tenant collate "C", unique_key collate "C") g
  cross join lateral (
    select ctid as place, coalesce(window_ends_at > coalesce(:now::timestamptz, now()), false) as stays from tidemill.uniques
    where tenant = g.tenant and key = g.unique_key and job_id = g.id for update) u),
let_go as (delete from tidemill.uniques where ctid = any(array(select place from keyed where not stays))),
dimmed as (update tidemill.uniques set live = false where ctid = any(array(select place from keyed where stays)))
select id, task, queue, tenant, priority, attempt + 1 as attempt, max_attempts, crashes, token + 1 as token, run_at, created_at,
       expires_at, timeout, args, case when not until_claimed then unique_key end as unique_key, limits, detailed, seq,
       null::uuid as lost
from got
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, id
from (select id from item except select id from gone) l

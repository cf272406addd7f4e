-- step_handoff: as `step`, for jobs with limits: the claimed jobs take over the slots that the ended jobs release.
-- PostgreSQL only, like `step`. A lane's quota is the number of its jobs that end. If one of these is lost, or a name has more held
-- jobs than it allows (its limit was lowered), or the worker has no live lease, nothing is claimed and all slots are released. Counts
-- are only read, and only slots that were not taken over are released, their names locked in order. Lanes are identified by their
-- array position: the planner cannot estimate their number, and joins would become nested loops over all of them.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- takes: now timestamptz, worker uuid, state text, tasks texts, pair_lane int4s, pair_name texts, names texts, maxima int4s
-- takes: lane_queue texts, lane_tenant texts, lane_priority int2s, lane_gate texts, lane_low int8s, lane_quota int4s
-- items: id uuid, token int8, to_state text, execution text, reason text, crashed bool, result text, error text
-- items: started_ago float8, ended_ago float8, lane int4
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, seq int8
-- gives: lost uuid
with item as materialized (
  select x.*, :worker::uuid as worker
  from unnest(:id::uuid[], :token::bigint[], :to_state::text[], :execution::text[], :reason::text[],
              :crashed::boolean[], :result::text[], :error::text[], :started_ago::float8[], :ended_ago::float8[],
              :lane::int[])
    as x(id, token, to_state, execution, reason, crashed, result, error, started_ago, ended_ago, lane)
  order by id),
gone as (
  delete from tidemill.running r using item x where r.id = x.id and r.token = x.token and r.worker is not distinct from x.worker
  returning r.*, x.to_state, x.execution, x.reason, x.crashed, x.result, x.error, x.started_ago, x.ended_ago, x.lane),
ended as (
  insert into tidemill.history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, limits, detailed, reason, args, state, execution, worker,
                               claimed_at, started_at, finished_at, cancel_reason, progress, result, error)
  select id, tenant, queue, task, priority, attempt, max_attempts, crashes + crashed::int, token, run_at, created_at,
         expires_at, timeout, unique_key, limits, detailed, reason, args, to_state, execution, worker, claimed_at,
         coalesce(coalesce(:now::timestamptz, now()) - make_interval(secs => started_ago), started_at),
         coalesce(:now::timestamptz, now()) - make_interval(secs => ended_ago), cancel_reason, progress, result, error
  from gone),
whole as materialized (
  select (select count(*) from gone) = (select count(*) from item) and not exists (
    select from unnest(:names::text[], :maxima::int[]) as x(name, max)
    cross join lateral (select from tidemill.uses u where u.name = x.name and u.used > x.max limit 1) o)
  and exists (
    select from tidemill.workers w
    where w.id = :worker::uuid and w.state <> 'stopped' and w.expires_at > coalesce(:now::timestamptz, now())) as fits),
lost as materialized (
  select case when not (select fits from whole) then (
    select array_agg(c.jobs order by l.n) from generate_series(1, cardinality(:lane_quota::int[])) as l(n)
    cross join lateral (select count(*)::int as jobs from gone g where g.lane = l.n) c) end as jobs),
lane as materialized (
  select l.n, l.quota, r.places, coalesce(cardinality(r.places), 0) as found
  from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_gate::text[],
              :lane_low::bigint[], :lane_quota::int[]) with ordinality as l(queue, tenant, priority, gate, low, quota, n)
  cross join lateral (
    select array_agg(c.ctid) as places from (
      select ctid from tidemill.ready
      where queue = l.queue and tenant = l.tenant and priority = l.priority and gate = l.gate and seq >= l.low
        and task = any(:tasks::text[]) -- when tasks
        and (select fits from whole)
      order by seq limit l.quota for update skip locked) c) r),
got as (
  delete from tidemill.ready where ctid = any(array(select unnest(places) from lane)) returning *),
open as materialized (select array_agg(coalesce(t.jobs[l.n], l.quota) - l.found order by l.n) as jobs from lane l cross join lost t),
back as materialized (
  select p.name, sum(o.jobs[p.n])::int as jobs
  from unnest(:pair_lane::int[], :pair_name::text[]) as p(n, name) cross join open o
  where o.jobs[p.n] > 0 group by p.name),
locked as materialized (
  select u.name from tidemill.uses u where u.name = any(array(select name from back)) order by u.name for update),
one_back as (
  update tidemill.uses u set used = greatest(u.used - 1, 0), changed_at = coalesce(:now::timestamptz, now())
  where (select count(*) from locked) > 0 and u.name = any(array(select name from back where jobs = 1))),
more_back as (
  update tidemill.uses u set used = greatest(u.used - b.jobs, 0), changed_at = coalesce(:now::timestamptz, now())
  from back b
  where (select count(*) from locked) > 0 and u.name = any(array(select name from back where jobs > 1)) and b.name = u.name),
begun as (
  insert into tidemill.running(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, limits, detailed, args, state, worker, claimed_at, started_at)
  select id, tenant, queue, task, priority, attempt + 1, max_attempts, crashes, token + 1, run_at, created_at, expires_at,
         timeout, case when not until_claimed then unique_key end, limits, detailed, args,
         case crashes when 0 then :state::text else 'claimed' end, :worker::uuid, coalesce(:now::timestamptz, clock_timestamp()),
         case when crashes = 0 and :state::text = 'running' then coalesce(:now::timestamptz, clock_timestamp()) end
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

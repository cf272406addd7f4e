-- step_handoff: as `step`, for jobs with limits: the claimed jobs take over the slots that the ended jobs release.
-- PostgreSQL only, like `step`. A lane's quota is the number of its jobs that end. If one of these is lost, or a name has more held
-- jobs than it allows (its limit was lowered), or the worker has no live lease, nothing is claimed and all slots are released. Counts
-- are only read, and only slots that were not taken over are released, their names locked in order. Lanes are identified by their
-- array position: the planner cannot estimate their number, and joins would become nested loops over all of them.
-- takes: now timestamptz, worker uuid, state text, tasks texts, pair_lane int4s, pair_name texts, names texts, maxima int4s
-- takes: lane_queue texts, lane_tenant texts, lane_priority int2s, lane_gate texts, lane_low int8s, lane_quota int4s
-- items: id uuid, token int8, to_state text, execution text, reason text, crashed bool, result text, error text
-- items: started_ago float8, ended_ago float8, lane int4, fingerprint text, variant text, cause text, message text
with item as materialized (
  select x.*, :worker::uuid as worker
  from unnest(:id::uuid[], :token::bigint[], :to_state::text[], :execution::text[], :reason::text[],
              :crashed::boolean[], :result::text[], :error::text[], :started_ago::float8[], :ended_ago::float8[],
              :lane::int[]
              , :fingerprint::text[], :variant::text[], :cause::text[], :message::text[] -- when failing
              )
    as x(id, token, to_state, execution, reason, crashed, result, error, started_ago, ended_ago, lane
         , fingerprint, variant, cause, message -- when failing
         )
  order by id),
gone as (
  -- include: fenced
    and not r.tied
  returning r.*, x.to_state, x.execution, x.reason, x.crashed, x.result, x.error, x.started_ago, x.ended_ago, x.lane
            , x.fingerprint, x.variant, x.cause, x.message -- when failing
            ),
-- include: end_jobs
whole as materialized (
  select (select count(*) from gone) = (select count(*) from item) and not exists (
    select from unnest(:names::text[], :maxima::int[]) as x(name, max)
    cross join lateral (select from tidemill.uses u where u.name = x.name and u.used > x.max limit 1) o)
  and
  -- include: live_worker
  as fits),
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
      select ctid from
      -- include: lane_jobs(gate=l.gate)
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
-- include: claim_jobs(clock=clock_timestamp(); jobs=got; worker=:worker::uuid)
-- include: step_result

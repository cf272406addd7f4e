-- claim_counted: as `claim`, from lanes with concurrency limits, and counts the claims, in one statement.
-- PostgreSQL only: SQLite, and other limits, use separate statements in one transaction for rooms, quotas and counts. Locks the names
-- of lanes that are not empty; names that another transaction is counting are skipped, and so are their lanes. A lane gets the room
-- of its limits that the quotas of the lanes before it leave. Values of lanes and names are looked up in arrays and objects: the
-- planner cannot estimate their number, and joins would become nested loops over all of them. Names with one claimed job, which are
-- the many names of keyed limits, are counted separately with a plain index scan. A claim is dated when its limits are locked, after
-- the finishes that made room for it; now() may precede those.
-- takes: now timestamptz, worker uuid, state text, limit int4, tasks texts
-- takes: pair_lane int4s, pair_name texts, pair_max int4s
-- items: lane_queue text, lane_tenant text, lane_priority int2, lane_gate text, lane_low int8, lane_quota int4, lane_counts bool
with lane as materialized (
  select l.queue, l.tenant, l.priority, l.gate, l.low, l.counts, l.n::int as n, r.jobs
  from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_gate::text[], :lane_low::bigint[],
              :lane_quota::int[], :lane_counts::boolean[])
    with ordinality as l(queue, tenant, priority, gate, low, quota, counts, n)
  cross join lateral (
    select count(*)::int as jobs from (
      select from
      -- include: lane_jobs(gate=l.gate)
      limit least(l.quota::bigint, :limit)) w) r
  where
  -- include: live_worker
  ),
size as materialized (select array_agg(jobs order by n) as jobs from lane),
pair as materialized (
  select p.n, p.name, p.max, s.jobs[p.n] as jobs
  from unnest(:pair_lane::int[], :pair_name::text[], :pair_max::int[]) as p(n, name, max) cross join size s
  where s.jobs[p.n] > 0),
counter as materialized (
  select u.name, u.used from tidemill.uses u
  where u.name = any(array(select name from pair)) order by u.name for update skip locked),
counted as materialized (select coalesce(jsonb_object_agg(name, used), '{}') as used from counter),
open as materialized (
  select p.n, p.name, p.jobs, p.max - (c.used -> p.name)::int as room from pair p cross join counted c),
wanted as materialized (
  select n, name, room, least(jobs, min(room) over lane) as jobs, bool_and(coalesce(room, 0) > 0) over lane as opens
  from open window lane as (partition by n)),
share as materialized (
  select n, min(least(jobs, left_over)) as quota
  from (select n, jobs, room - sum(jobs) over (partition by name order by n) + jobs as left_over from wanted where opens) s
  group by n having min(left_over) > 0),
shared as materialized (select coalesce(jsonb_object_agg(n, quota), '{}') as quotas from share),
got as (
  delete from tidemill.ready where ctid = any(array(
    select r.ctid
    from (select l.*, case when l.counts then (s.quotas -> l.n::text)::int else l.jobs end as most
          from lane l cross join shared s where l.jobs > 0 order by l.n) l
    cross join lateral (
      select ctid from
      -- include: lane_jobs(gate=l.gate)
      order by seq limit coalesce(l.most, 0) for update skip locked) r
    limit :limit))
  returning *),
taken as materialized (
  select p.name, count(*)::int as jobs
  from got g join lane l on (l.queue, l.tenant, l.priority, l.gate) = (g.queue, g.tenant, g.priority, g.gate)
  join pair p on p.n = l.n group by p.name),
one_more as (
  update tidemill.uses u set used = u.used + 1, changed_at = coalesce(:now::timestamptz, now())
  where u.name = any(array(select name from taken where jobs = 1))),
more as (
  update tidemill.uses u set used = u.used + t.jobs, changed_at = coalesce(:now::timestamptz, now())
  from taken t where u.name = any(array(select name from taken where jobs > 1)) and t.name = u.name),
-- include: claim_jobs(clock=clock_timestamp(); jobs=got; worker=:worker::uuid)
select
  -- include: claimed_row
from got

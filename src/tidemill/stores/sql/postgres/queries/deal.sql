-- deal: claims pending jobs for several workers, and deals them by their numbers: one for each worker, then a second one.
-- PostgreSQL only: SQLite claims for one worker and reassigns the jobs, like PostgreSQL for lanes with limits. Locks what `claim` locks.
-- A worker without a live lease has no turn: one lookup in workers_pkey for each.
-- takes: now timestamptz, state text, tasks texts, ask_worker uuids, ask_limit int4s
-- takes: lane_queue texts, lane_tenant texts, lane_priority int2s, lane_low int8s, lane_quota int4s
with asked as materialized (
  select a.worker, row_number() over (order by t.turn, a.place) as turn
  from unnest(:ask_worker::uuid[], :ask_limit::int[]) with ordinality as a(worker, jobs, place)
  cross join lateral generate_series(1, a.jobs) as t(turn)
  where exists (
    select from tidemill.workers w
    where w.id = a.worker and w.state <> 'stopped' and w.expires_at > coalesce(:now::timestamptz, now()))),
got as (
  delete from tidemill.ready where ctid = any(array(
    select r.ctid
    from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_low::bigint[],
                :lane_quota::int[]) as l(queue, tenant, priority, low, quota)
    cross join lateral (
      select ctid from
      -- include: lane_jobs(gate='')
      order by seq limit least(l.quota, (select count(*) from asked)) for update skip locked) r
    limit (select count(*) from asked)))
  returning *),
dealt as (
  select g.*, a.worker
  from (select got.*, row_number() over (order by seq) as turn from got) g join asked a on a.turn = g.turn),
-- include: claim_jobs(clock=now(); jobs=dealt; worker=worker)
select
  -- include: claimed_row
  , worker
-- gives: worker uuid
from dealt

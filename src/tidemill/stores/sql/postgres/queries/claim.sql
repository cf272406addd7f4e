-- claim: claims pending jobs for one worker, lane by lane.
-- Locks the rows it claims and skips locked ones, then locks the unique keys that these jobs release, in key order like every other
-- statement: one by one, so that no plan walks all keys for the order. `ctid = any(array(…))` stays a Tid scan in every state of
-- statistics and plan cache; each lane is an index scan of ready_claim from its watermark on. A worker without a live lease gets
-- nothing: one lookup in workers_pkey, before any lane is scanned.
-- takes: now timestamptz, worker uuid, state text, limit int4, tasks texts
-- items: lane_queue text, lane_tenant text, lane_priority int2, lane_gate text, lane_low int8, lane_quota int4
with got as (
  delete from tidemill.ready where ctid = any(array(
    select r.ctid
    from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_gate::text[],
                :lane_low::bigint[], :lane_quota::int[]) as l(queue, tenant, priority, gate, low, quota)
    -- include: claim_lanes(gate=l.gate)
-- include: claim_jobs(clock=now(); jobs=got; worker=:worker::uuid)
select
  -- include: claimed_row
from got

-- step_claim: the claim of a step, from lanes without limits, and the result of the step.
-- takes: now timestamptz, worker uuid, state text, limit int4, tasks texts
-- takes: lane_queue texts, lane_tenant texts, lane_priority int2s, lane_low int8s, lane_quota int4s
got as (
  delete from tidemill.ready where ctid = any(array(
    select r.ctid
    from unnest(:lane_queue::text[], :lane_tenant::text[], :lane_priority::smallint[], :lane_low::bigint[],
                :lane_quota::int[]) as l(queue, tenant, priority, low, quota)
    -- include: claim_lanes(gate='')
-- include: claim_jobs(clock=now(); jobs=got; worker=:worker::uuid)
-- include: step_result

-- claim_lanes: takes jobs of the lanes `l` out of ready, up to their quotas, and skips locked ones; nothing for a dead worker.
cross join lateral (
  select ctid from
  -- include: lane_jobs(gate={gate})
  order by seq limit l.quota for update skip locked) r
where
-- include: live_worker
limit :limit))
returning *),

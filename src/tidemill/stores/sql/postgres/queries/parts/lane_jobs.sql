-- lane_jobs: the pending jobs of the lane `l`, from its watermark on; an index scan of ready_claim.
tidemill.ready
where queue = l.queue and tenant = l.tenant and priority = l.priority and gate = {gate} and seq >= l.low
  and task = any(:tasks::text[]) -- when tasks

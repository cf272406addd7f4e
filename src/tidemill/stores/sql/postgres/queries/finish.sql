-- finish: applies every transition of a held job, keyed by id, token and worker; returns the lost ids.
-- Every end is counted in the journal of ends. Ended jobs move to history with their last execution; for released jobs that
-- execution becomes a separate row. A job with a cancel
-- request gets the state `on_cancel`, if there is one, for the reason of the request. Locks jobs in the order of their ids, then the keys they release in key order.
-- If jobs count against limits, these are released: their names are locked in their order, waiting. Lines for jobs that do not end,
-- and for jobs that keep less than everything, are present only if the batch has one.
-- ignores: alike, mixed
-- include: finish_jobs
-- gives: id uuid
select id from item except select id from gone

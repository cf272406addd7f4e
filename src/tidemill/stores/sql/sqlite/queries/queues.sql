-- queues: the queues with pending jobs, with or without limits: a loose scan of the index ready_claim.
-- gives: queue text
with recursive next(queue) as (
  select min(queue) from tidemill_ready
  union all
  select (select min(queue) from tidemill_ready where queue > l.queue) from next l where l.queue is not null)
select queue from next where queue is not null

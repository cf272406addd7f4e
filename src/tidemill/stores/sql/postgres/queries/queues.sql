-- queues: the queues with pending jobs, with or without limits: a loose scan of the index ready_claim.
-- gives: queue text
with recursive next as (
  (select queue from tidemill.ready order by queue limit 1)
  union all
  select n.queue from next l cross join lateral (
    select queue from tidemill.ready where queue > l.queue order by queue limit 1) n)
select queue from next

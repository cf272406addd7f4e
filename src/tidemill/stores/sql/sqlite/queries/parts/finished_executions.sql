-- finished_executions: the executions of the batch, as they are counted.
select r.tenant, r.task, r.queue, r.worker, {state}, x.execution, r.attempt, r.run_at,
       coalesce(:now - cast(round(x.started_ago * 1000000) as integer), r.started_at),
       :now - cast(round(x.ended_ago * 1000000) as integer)
from
-- include: finishing

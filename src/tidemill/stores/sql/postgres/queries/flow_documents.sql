-- flow_documents: the ended jobs of a flow, the longest ended first. Index: details_flow.
-- takes: flow_id uuid, after_at timestamptz, after_id uuid, limit int4
select
  -- include: job_row(args=args; result=result)
from tidemill.history h
where h.id in (select t.id from tidemill.details t where t.flow_id = :flow_id::uuid)
  and (finished_at, id) > (:after_at::timestamptz, :after_id::uuid) -- when after_at
order by finished_at, id limit :limit

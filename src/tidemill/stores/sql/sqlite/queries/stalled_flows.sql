-- stalled_flows: live flows with a job that has been pending since before an instant, while nothing else of them runs or has ended.
-- It reads all pending jobs, so callers ask only if a queue is that old.
-- takes: tenant text, before timestamptz, limit int4
select
  -- include: flow_row
from tidemill_flows f
where f.ended_at is null
  and tenant = :tenant -- when tenant
  and f.id in (
  select distinct t.flow_id as id from tidemill_ready r cross join tidemill_details t on t.id = r.id
  where r.tied and r.run_at < :before and t.flow_id is not null)
  and not exists (select 1 from tidemill_details t cross join tidemill_running j on j.id = t.id where t.flow_id = f.id)
  and not exists (select 1 from tidemill_details t cross join tidemill_history h on h.id = t.id
                  where t.flow_id = f.id and h.finished_at >= :before)
order by f.id limit :limit

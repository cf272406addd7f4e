-- stalled_flows: live flows with a job that has been pending since before an instant, while nothing else of them runs or has ended.
-- It reads all pending jobs, so callers ask only if a queue is that old.
-- takes: tenant text, before timestamptz, limit int4
select
  -- include: flow_row
from tidemill.flows f
where f.ended_at is null
  and tenant = :tenant -- when tenant
  and f.id in (
  select distinct t.flow_id as id from tidemill.ready r join tidemill.details t on t.id = r.id
  where r.tied and r.run_at < :before::timestamptz and t.flow_id is not null)
  and not exists (select from tidemill.details t join tidemill.running j on j.id = t.id where t.flow_id = f.id)
  and not exists (select from tidemill.details t join tidemill.history h on h.id = t.id
                  where t.flow_id = f.id and h.finished_at >= :before::timestamptz)
order by f.id limit :limit

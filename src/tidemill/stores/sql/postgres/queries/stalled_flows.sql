-- stalled_flows: live flows with a job that has been pending since before an instant, while nothing else of them runs or has ended.
-- With more than 50 live flows it reads all pending jobs, otherwise the jobs of these flows. Callers ask only if a queue is that old.
-- takes: tenant text, before timestamptz, limit int4
select
  -- include: flow_row
from tidemill.flows f
where f.ended_at is null
  and tenant = :tenant -- when tenant
  and f.id in (
  select l.id from (select count(*) as flows from (select 1 from tidemill.flows where ended_at is null limit 51) x) live cross join tidemill.flows l
  where live.flows < 51 and l.ended_at is null
    and exists (select from tidemill.details t join tidemill.ready r on r.id = t.id
                where t.flow_id = l.id and r.tied and r.run_at < :before::timestamptz)
  union all
  select t.flow_id from (select count(*) as flows from (select 1 from tidemill.flows where ended_at is null limit 51) x) live cross join tidemill.ready r join tidemill.details t on t.id = r.id
  where live.flows = 51 and r.tied and r.run_at < :before::timestamptz and t.flow_id is not null)
  and not exists (select from tidemill.details t join tidemill.running j on j.id = t.id where t.flow_id = f.id)
  and not exists (select from tidemill.details t join tidemill.history h on h.id = t.id
                  where t.flow_id = f.id and h.finished_at >= :before::timestamptz)
order by f.id limit :limit

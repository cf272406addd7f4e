-- empty_groups: maps outside of flows that ended before an instant and of which no job is left, the longest ended first.
-- Those that a live job needs are omitted. Index: flows_ended.
-- takes: before timestamptz, limit int4
select
  -- include: flow_row
from tidemill.flows f
where f.ended_at < :before::timestamptz and f.group_id is null and f.kind = 'map'
  and not exists (select from tidemill.details t where t.flow_id = f.id)
  and not exists (select from tidemill.details t where t.group_id = f.id)
  and not exists (select from tidemill.dependencies d where d.needs_id = f.id and (
    exists (select from tidemill.ready j where j.id = d.job_id) or exists (select from tidemill.scheduled j where j.id = d.job_id)
    or exists (select from tidemill.parked j where j.id = d.job_id) or exists (select from tidemill.running j where j.id = d.job_id)))
order by f.ended_at, f.id limit :limit

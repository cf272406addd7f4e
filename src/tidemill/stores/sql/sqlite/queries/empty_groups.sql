-- empty_groups: maps outside of flows that ended before an instant and of which no job is left, the longest ended first.
-- Those that a live job needs are omitted. Index: flows_ended.
-- takes: before timestamptz, limit int4
select
  -- include: flow_row
from tidemill_flows f
where f.ended_at < :before and f.group_id is null and f.kind = 'map'
  and not exists (select 1 from tidemill_details t where t.flow_id = f.id)
  and not exists (select 1 from tidemill_details t where t.group_id = f.id)
  and not exists (select 1 from tidemill_dependencies d where d.needs_id = f.id and (
    exists (select 1 from tidemill_ready j where j.id = d.job_id) or exists (select 1 from tidemill_scheduled j where j.id = d.job_id)
    or exists (select 1 from tidemill_parked j where j.id = d.job_id) or exists (select 1 from tidemill_running j where j.id = d.job_id)))
order by f.ended_at, f.id limit max(:limit, 0)

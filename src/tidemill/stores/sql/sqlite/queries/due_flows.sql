-- due_flows: ended flows and batches of a selection, the longest ended first. Index: flows_ended.
-- Flows of which a job, or a job that needs one of theirs, has not ended are omitted.
-- takes: limit int4
-- include: other_rules
select
  -- include: flow_row
from (
  select f.*, f.name as task, f.ended_at as finished_at from tidemill_flows f
  where f.ended_at is not null and f.group_id is null and f.kind in ('flow', 'batch')) f
where
  -- include: governed
  and not exists (select 1 from tidemill_details t where t.flow_id = f.id and (
    exists (select 1 from tidemill_ready j where j.id = t.id) or exists (select 1 from tidemill_scheduled j where j.id = t.id)
    or exists (select 1 from tidemill_parked j where j.id = t.id) or exists (select 1 from tidemill_running j where j.id = t.id)))
  and not exists (select 1 from tidemill_dependencies d where d.needs_id = f.id and (
    exists (select 1 from tidemill_ready j where j.id = d.job_id) or exists (select 1 from tidemill_scheduled j where j.id = d.job_id)
    or exists (select 1 from tidemill_parked j where j.id = d.job_id) or exists (select 1 from tidemill_running j where j.id = d.job_id)))
  and not exists (select 1 from tidemill_details t cross join tidemill_dependencies d on d.needs_id = t.id where t.flow_id = f.id and (
    exists (select 1 from tidemill_ready j where j.id = d.job_id) or exists (select 1 from tidemill_scheduled j where j.id = d.job_id)
    or exists (select 1 from tidemill_parked j where j.id = d.job_id) or exists (select 1 from tidemill_running j where j.id = d.job_id)))
order by finished_at, id limit :limit

-- needed_job: whether a live flow, or a job that has not ended, needs the ended job `h` or the group that it is a member of.
exists (
  select 1 from tidemill_details t cross join tidemill_flows f on f.id in (t.flow_id, t.group_id)
  where t.id = h.id and f.ended_at is null)
or exists (
  select 1 from tidemill_dependencies d where d.needs_id in (h.id, (select t.group_id from tidemill_details t where t.id = h.id)) and (
    exists (select 1 from tidemill_ready j where j.id = d.job_id) or exists (select 1 from tidemill_scheduled j where j.id = d.job_id)
    or exists (select 1 from tidemill_parked j where j.id = d.job_id)
    or exists (select 1 from tidemill_running j where j.id = d.job_id)))

-- needed_job: whether a live flow, or a job that has not ended, needs the ended job `h` or the group that it is a member of.
exists (
  select from tidemill.details t join tidemill.flows f on f.id in (t.flow_id, t.group_id) where t.id = h.id and f.ended_at is null)
or exists (
  select from tidemill.dependencies d where d.needs_id in (h.id, (select t.group_id from tidemill.details t where t.id = h.id)) and (
    exists (select from tidemill.ready j where j.id = d.job_id) or exists (select from tidemill.scheduled j where j.id = d.job_id)
    or exists (select from tidemill.parked j where j.id = d.job_id) or exists (select from tidemill.running j where j.id = d.job_id)))

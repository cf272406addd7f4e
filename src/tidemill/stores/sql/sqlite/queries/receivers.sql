-- receivers: the suspended jobs among these whose signal or event has arrived. Read only.
-- A wait counts only if the execution that wrote it is the one that was suspended last, so a row that was left behind wakes no job.
-- Indexes: the primary keys of parked and waits, signals_unread, events_match, events_name.
-- takes: ids uuids
-- gives: id uuid, tenant text, queue text
select p.id, p.tenant, p.queue
from tidemill_parked p
where p.state = 'waiting' and p.id in (select unhex(value) from json_each(:ids))
  and (
    exists (
      select 1 from tidemill_waits w join tidemill_signals s on s.job_id = w.job_id and s.name = w.name and s.taken_at is null
      where w.job_id = p.id and w.token = p.token and not w.event)
    or exists (
      select 1 from tidemill_waits w join tidemill_events e on e.tenant = w.tenant and e.name = w.name and e.match = w.match and e.created_at >= w.since_at
      where w.job_id = p.id and w.token = p.token and w.event and w.match <> '')
    or exists (
      select 1 from tidemill_waits w join tidemill_events e on e.tenant = w.tenant and e.name = w.name and e.created_at >= w.since_at
      where w.job_id = p.id and w.token = p.token and w.event and w.match = ''))
order by p.id

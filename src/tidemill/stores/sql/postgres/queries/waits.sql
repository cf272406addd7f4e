-- waits: the names that suspended jobs wait for now. Index: the primary keys of waits and parked.
-- takes: tenant text, ids uuids
-- gives: job_id uuid, name text, match text, event bool, since_at timestamptz
select w.job_id, w.name, w.match, w.event, w.since_at
from tidemill.waits w
where w.job_id = any(:ids::uuid[])
  and w.tenant = :tenant -- when tenant
  and exists (select from tidemill.parked p where p.id = w.job_id and p.token = w.token and p.state = 'waiting')
order by w.job_id, w.event, w.name, w.match

-- waits: the names that suspended jobs wait for now. Index: the primary keys of waits and parked.
-- takes: tenant text, ids uuids
-- gives: job_id uuid, name text, match text, event bool, since_at timestamptz
select w.job_id, w.name, w.match, w.event, w.since_at
from tidemill_waits w
where w.job_id in (select unhex(value) from json_each(:ids))
  and w.tenant = :tenant -- when tenant
  and exists (select 1 from tidemill_parked p where p.id = w.job_id and p.token = w.token and p.state = 'waiting')
order by w.job_id, w.event, w.name, w.match

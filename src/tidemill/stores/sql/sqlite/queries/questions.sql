-- questions: the waits of suspended jobs for answers of people, by job. Index: waits_question.
-- takes: tenant text, after uuid, limit int4
-- gives: job_id uuid, name text, match text, event bool, since_at timestamptz
select w.job_id, w.name, w.match, w.event, w.since_at
from tidemill_waits w
where w.name >= 'ask/' and w.name < 'ask0' and not w.event
  and w.tenant = :tenant -- when tenant
  and w.job_id > :after -- when after
  and exists (select 1 from tidemill_parked p where p.id = w.job_id and p.token = w.token and p.state = 'waiting')
order by w.job_id, w.name limit max(:limit, 0)

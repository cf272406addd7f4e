-- release_jobs: moves waiting jobs to ready; returns those that were waiting.
-- By id, never by ctid: a row that changed since the snapshot must not be missed. The expression keeps the planner from parked_state.
-- takes: now timestamptz, ids uuids
-- gives: id uuid, queue text
delete from temp.tidemill_due
;
insert into temp.tidemill_due(id)
select id from tidemill_parked where id in (select unhex(value) from json_each(:ids)) and state = 'waiting'
;
insert into tidemill_ready(
  -- include: waiting_columns
  )
select
  -- include: job_columns(prefix=p)
  , p.attempt, p.crashes, p.token, :now, p.unique_key, p.until_claimed
from temp.tidemill_due d cross join tidemill_parked p on p.id = d.id order by p.id
;
delete from tidemill_parked where id in (select id from temp.tidemill_due)
;
delete from tidemill_unreachable_jobs where job_id in (select id from temp.tidemill_due)
;
select r.id, r.queue from temp.tidemill_due d cross join tidemill_ready r on r.id = d.id

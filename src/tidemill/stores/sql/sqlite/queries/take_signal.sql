-- take_signal: takes the oldest unread signal of these names for a held job, and writes the step's record, or finds that record.
-- A signal with a key stays without its payload, so that the key is accepted once; any other is deleted.
-- A job that took one has made progress, so its attempts and crashes count from this execution (as in record_steps).
-- Index: signals_unread.
-- takes: now timestamptz, job_id uuid, number int8, worker uuid, names texts, record text, before timestamptz
-- gives: lost bool, value text
delete from temp.tidemill_taken
;
insert into temp.tidemill_taken(position, key, value)
select s.position, s.key, '{"is":"signal","name":' || json_quote(s.name)
  || ',"source":' || json_quote(s.source) || ',"at":' || s.created_at || ',"v":' || coalesce(s.payload, 'null') || '}'
from tidemill_signals s indexed by tidemill_signals_unread
where s.job_id = :job_id and s.taken_at is null and s.name in (select value from json_each(:names))
  and s.created_at <= :before -- when before
  and exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
  and not exists (select 1 from tidemill_checkpoints where job_id = :job_id and name = :record)
order by s.position limit 1
;
delete from tidemill_signals where position in (select position from temp.tidemill_taken where key is null)
;
update tidemill_signals set taken_at = :now, payload = null
where position in (select position from temp.tidemill_taken where key is not null)
;
update tidemill_running set attempt = 1, crashes = 0
where id = :job_id and (attempt > 1 or crashes > 0) and exists (select 1 from temp.tidemill_taken)
;
insert into tidemill_checkpoints(job_id, name, value, created_at)
select :job_id, :record, value, :now from temp.tidemill_taken
;
select r.id is null as lost,
  case when r.id is not null then (select value from tidemill_checkpoints where job_id = :job_id and name = :record) end as value
from (select 1) left join tidemill_running r on r.id = :job_id and r.token = :number and r.worker = :worker

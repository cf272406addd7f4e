-- record_steps: inserts records of held jobs' steps, the first value of a name stands; returns the lost ids.
-- A job with a new record counts attempts and crashes from this execution. Index: checkpoints' primary key.
-- takes: now timestamptz
-- items: job_id uuid, number int8, worker uuid, name text, value text
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :job_id where not exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
;
update tidemill_running set attempt = 1, crashes = 0
where id = :job_id and token = :number and worker = :worker and (attempt > 1 or crashes > 0)
  and not exists (select 1 from tidemill_checkpoints where job_id = :job_id and name = :name)
;
insert into tidemill_checkpoints(job_id, name, value, created_at)
select :job_id, :name, :value, :now
where exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
on conflict (job_id, name) do nothing
;
select id from temp.tidemill_lost

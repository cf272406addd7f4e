-- save_checkpoints: writes checkpoints of held jobs over those of the same name; returns the lost ids.
-- takes: now timestamptz
-- items: job_id uuid, number int8, worker uuid, name text, value text
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :job_id where not exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
;
insert into tidemill_checkpoints(job_id, name, value, created_at)
select :job_id, :name, :value, :now
where exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
on conflict (job_id, name) do update set value = excluded.value, created_at = excluded.created_at
;
select id from temp.tidemill_lost

-- log: appends log lines of held jobs; returns the lost ids.
-- items: job_id uuid, number int8, worker uuid, at timestamptz, level text, stage text, message text, details text, duration interval
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :job_id where not exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
;
insert into tidemill_logs(job_id, number, at, level, stage, message, details, duration)
select :job_id, :number, :at, :level, :stage, :message, :details, :duration
where exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
;
select id from temp.tidemill_lost

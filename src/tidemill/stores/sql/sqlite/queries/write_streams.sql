-- write_streams: inserts items of streams of held jobs, each once; returns the lost ids. Index: streams' primary key.
-- items: job_id uuid, number int8, worker uuid, name text, n int8, data text
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :job_id where not exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
;
insert into tidemill_streams(job_id, name, number, n, data)
select :job_id, :name, :number, :n, :data
where exists (select 1 from tidemill_running where id = :job_id and token = :number and worker = :worker)
on conflict do nothing
;
select id from temp.tidemill_lost

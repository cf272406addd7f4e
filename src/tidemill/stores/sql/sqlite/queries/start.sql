-- start: changes claimed jobs to running; returns the lost ids.
-- takes: now timestamptz
-- items: id uuid, token int8, worker uuid, started_ago float8
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :id where not exists (select 1 from tidemill_running where id = :id and token = :token and worker = :worker)
;
update tidemill_running set state = 'running', started_at = coalesce(started_at, :now - cast(round(:started_ago * 1000000) as integer))
where id = :id and token = :token and worker = :worker
;
select id from temp.tidemill_lost

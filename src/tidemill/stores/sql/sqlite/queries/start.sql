-- start: turns claimed jobs to running; answers with the ids that are lost.
-- takes: now timestamptz
-- items: id uuid, token int8
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :id where not exists (select 1 from tidemill_running where id = :id and token = :token)
;
update tidemill_running set state = 'running', started_at = coalesce(started_at, :now) where id = :id and token = :token
;
select id from temp.tidemill_lost

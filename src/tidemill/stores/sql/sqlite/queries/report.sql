-- report: writes the progress of held jobs; returns the lost ids.
-- items: id uuid, token int8, worker uuid, progress text
-- gives: id uuid
delete from temp.tidemill_lost
;
insert or ignore into temp.tidemill_lost(id)
select :id where not exists (select 1 from tidemill_running where id = :id and token = :token and worker = :worker)
;
update tidemill_running set progress = :progress where id = :id and token = :token and worker = :worker
;
select id from temp.tidemill_lost

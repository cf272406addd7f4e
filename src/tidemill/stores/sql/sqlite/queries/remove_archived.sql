-- remove_archived: deletes documents whose tier and fingerprint are unchanged; returns the deleted ids.
-- items: id uuid, tier text, fingerprint text
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select id, false from tidemill_archive where id = :id and tier = :tier and fingerprint = :fingerprint
;
delete from tidemill_archive where id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone

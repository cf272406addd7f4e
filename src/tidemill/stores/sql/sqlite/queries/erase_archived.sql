-- erase_archived: deletes documents, and unique keys of these jobs unless they are live; returns the ids of the documents.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select id, false from tidemill_archive
where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
;
delete from tidemill_uniques where job_id in (select id from temp.tidemill_gone)
  and job_id not in (select id from tidemill_jobs where id in (select id from temp.tidemill_gone))
;
delete from tidemill_archive where id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone

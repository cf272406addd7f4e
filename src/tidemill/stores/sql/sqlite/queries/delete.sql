-- delete: deletes ended jobs with all their records and the keys they hold; returns the deleted ids.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select id, detailed from tidemill_history h
where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
  and not (h.tied and (
    -- include: needed_job
    ))
;
delete from tidemill_uniques where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_details where id in (select id from temp.tidemill_gone where detailed)
;
delete from tidemill_executions where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_logs where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_checkpoints where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_streams where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_signals where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_waits where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_joins where id in (select id from temp.tidemill_gone)
;
delete from tidemill_dependencies where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_blobs where place is null and job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_history where id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone

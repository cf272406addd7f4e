-- forget: deletes the originals of archived jobs, each only if it is unchanged since the copy; returns the deleted ids.
-- Their blobs stay: the documents refer to them.
-- items: id uuid, tenant text, token int8, finished_at timestamptz
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select id, detailed from tidemill_history h
where id = :id and tenant = :tenant and token = :token and finished_at = :finished_at
  and not (h.tied and (
    -- include: needed_job
    ))
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
update tidemill_blobs set archived = 1 where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_history where id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone

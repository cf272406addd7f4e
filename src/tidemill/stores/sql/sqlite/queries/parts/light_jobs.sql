-- light_jobs: deletes the earlier executions of jobs that keep only the last one, and all records of jobs that keep nothing.
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select r.id, r.detailed from
  -- include: finishing
where x.keep = 'nothing'
;
delete from tidemill_executions where job_id in (
  select r.id from
  -- include: finishing
  where x.keep <> 'all' and r.token > 1)
;
delete from tidemill_details where id in (select id from temp.tidemill_gone where detailed)
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
delete from tidemill_blobs where place is null and job_id in (select id from temp.tidemill_gone)
;

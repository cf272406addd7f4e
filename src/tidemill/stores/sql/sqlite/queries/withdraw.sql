-- withdraw: deletes jobs that went to another store, each only if it has not begun or changed; returns the deleted ids.
-- Collects the jobs in a temporary table. With a reason also copies that wait for it. The end of such a job is not recorded.
-- takes: tenant text, reason text
-- items: id uuid, queue text, priority int2, run_at timestamptz, limits text
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select j.id, j.detailed from tidemill_ready j
where j.id = :id and j.tenant = :tenant and j.queue = :queue and j.priority = :priority and j.run_at = :run_at
  and j.limits is :limits and
  -- include: carried_job
;
insert into temp.tidemill_gone(id, detailed)
select j.id, j.detailed from tidemill_scheduled j
where j.id = :id and j.tenant = :tenant and j.queue = :queue and j.priority = :priority and j.run_at = :run_at
  and j.limits is :limits and
  -- include: carried_job
;
insert into temp.tidemill_gone(id, detailed) -- when reason
select j.id, j.detailed from tidemill_parked j -- when reason
where j.id = :id and j.tenant = :tenant and j.state = 'waiting' and j.token = 0 and j.reason = :reason -- when reason
;
delete from tidemill_ready where id in (select id from temp.tidemill_gone)
;
delete from tidemill_scheduled where id in (select id from temp.tidemill_gone)
;
delete from tidemill_parked where id in (select id from temp.tidemill_gone)
;
delete from tidemill_uniques where job_id in (select id from temp.tidemill_gone)
;
delete from tidemill_details where id in (select id from temp.tidemill_gone where detailed)
;
select id from temp.tidemill_gone

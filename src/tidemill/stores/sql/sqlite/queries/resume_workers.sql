-- resume_workers: ends the pauses of these workers' places; returns the workers that were paused. Index: the primary keys.
-- takes: ids uuids
-- gives: id uuid
select w.id from tidemill_workers w join tidemill_worker_pauses p on p.supervisor = w.supervisor and p.place = w.place
where w.id in (select unhex(value) from json_each(:ids))
;
delete from tidemill_worker_pauses
where (supervisor, place) in (
  select supervisor, place from tidemill_workers where id in (select unhex(value) from json_each(:ids)))

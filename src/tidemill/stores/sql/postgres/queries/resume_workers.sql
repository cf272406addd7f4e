-- resume_workers: ends the pauses of these workers' places; returns the workers that were paused. Index: the primary keys.
-- takes: ids uuids
-- gives: id uuid
with gone as (
  delete from tidemill.worker_pauses p using tidemill.workers w
  where w.id = any(:ids::uuid[]) and p.supervisor = w.supervisor and p.place = w.place
  returning p.supervisor, p.place)
select w.id from tidemill.workers w join gone g on g.supervisor = w.supervisor and g.place = w.place
where w.id = any(:ids::uuid[])

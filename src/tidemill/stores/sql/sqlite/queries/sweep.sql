-- sweep: deletes dead workers, expired unique keys and requests to supervisors without workers; returns the workers' ids.
-- A dead worker was declared gone, its lease ended long ago, and it holds no job. A unique key expires with its window.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
delete from tidemill_uniques where not live and window_ends_at <= :now
;
delete from tidemill_workers
where state = 'stopped' and expires_at <= :now - :older_than
  and not exists (select 1 from tidemill_running r where r.worker = tidemill_workers.id)
returning id
;
delete from tidemill_worker_pauses where not exists (
  select 1 from tidemill_workers w where w.supervisor = tidemill_worker_pauses.supervisor)
;
delete from tidemill_worker_scales where not exists (
  select 1 from tidemill_workers w where w.supervisor = tidemill_worker_scales.supervisor)

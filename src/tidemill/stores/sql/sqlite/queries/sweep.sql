-- sweep: removes workers that ended long ago and hold nothing, and unique keys whose window has passed; the workers' ids.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
delete from tidemill_uniques where not live and window_ends_at <= :now
;
delete from tidemill_workers
where expires_at <= :now - :older_than and not exists (select 1 from tidemill_running r where r.worker = tidemill_workers.id)
returning id

-- sweep: removes workers that ended long ago and hold nothing, and unique keys whose window has passed; the workers' ids.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
with keys_gone as (
  delete from tidemill.uniques where not live and window_ends_at <= coalesce(:now::timestamptz, now()))
delete from tidemill.workers w
where w.expires_at <= coalesce(:now::timestamptz, now()) - :older_than::interval
  and not exists (select from tidemill.running r where r.worker = w.id)
returning w.id

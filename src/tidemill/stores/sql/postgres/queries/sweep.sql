-- sweep: deletes dead workers, expired unique keys and requests to supervisors without workers; returns the workers' ids.
-- A dead worker was declared gone, its lease ended long ago, and it holds no job. A unique key expires with its window.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
with keys_gone as (
  delete from tidemill.uniques where not live and window_ends_at <= coalesce(:now::timestamptz, now())),
gone as (
  delete from tidemill.workers w
  where w.state = 'stopped' and w.expires_at <= coalesce(:now::timestamptz, now()) - :older_than::interval
    and not exists (select from tidemill.running r where r.worker = w.id)
  returning w.id),
pauses_gone as (
  delete from tidemill.worker_pauses p where not exists (
    select from tidemill.workers w where w.supervisor = p.supervisor and w.id not in (select id from gone))),
scales_gone as (
  delete from tidemill.worker_scales s where not exists (
    select from tidemill.workers w where w.supervisor = s.supervisor and w.id not in (select id from gone)))
select id from gone

-- beat: renews the leases of workers that are still alive (a HOT update); answers with those, each with the jobs that are to stop.
-- One statement, as every worker beats every few seconds; nearly always there is nothing to stop. Index: running_worker.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text, cancels text
update tidemill.workers w
set beat_at = coalesce(:now::timestamptz, now()), expires_at = coalesce(:now::timestamptz, now()) + :lease::interval, beats = beats + 1
where id = any(:ids::uuid[])
  and expires_at > coalesce(:now::timestamptz, now())
returning w.id, w.state,
  (select json_agg(json_build_array(r.id, r.token, r.cancel_reason))::text
   from tidemill.running r where r.worker = w.id and r.cancel_reason is not null) as cancels

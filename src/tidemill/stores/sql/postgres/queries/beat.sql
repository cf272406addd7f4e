-- beat: renews the leases of workers that are still alive (a HOT update); answers with those.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text
update tidemill.workers
set beat_at = coalesce(:now::timestamptz, now()), expires_at = coalesce(:now::timestamptz, now()) + :lease::interval, beats = beats + 1
where id = any(:ids::uuid[]) and expires_at > coalesce(:now::timestamptz, now())
returning id, state

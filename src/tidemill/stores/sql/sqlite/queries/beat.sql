-- beat: renews the leases of workers that are still alive; answers with those.
-- takes: now timestamptz, ids uuids, lease interval
-- gives: id uuid, state text
update tidemill_workers
set beat_at = :now, expires_at = :now + :lease, beats = beats + 1
where id in (select unhex(value) from json_each(:ids)) and expires_at > :now
returning id, state

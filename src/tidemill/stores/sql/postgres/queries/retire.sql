-- retire: ends the leases of workers. Workers that stopped in good order have their last heartbeat at the end of their lease.
-- takes: now timestamptz, ids uuids
update tidemill.workers set expires_at = least(expires_at, coalesce(:now::timestamptz, now())), state = 'stopped'
  , beat_at = greatest(beat_at, coalesce(:now::timestamptz, now())) -- when left
where id = any(:ids::uuid[])

-- retire: ends the leases of workers. Workers that stopped in good order have their last heartbeat at the end of their lease.
-- takes: now timestamptz, ids uuids
update tidemill_workers set expires_at = min(expires_at, :now), state = 'stopped'
  , beat_at = max(beat_at, :now) -- when left
where id in (select unhex(value) from json_each(:ids))

-- retire: ends the leases of workers that are gone.
-- takes: now timestamptz, ids uuids
update tidemill_workers set expires_at = min(expires_at, :now), state = 'stopped'
where id in (select unhex(value) from json_each(:ids))

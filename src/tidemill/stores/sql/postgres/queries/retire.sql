-- retire: ends the leases of workers that are gone.
-- takes: now timestamptz, ids uuids
update tidemill.workers set expires_at = least(expires_at, coalesce(:now::timestamptz, now())), state = 'stopped'
where id = any(:ids::uuid[])

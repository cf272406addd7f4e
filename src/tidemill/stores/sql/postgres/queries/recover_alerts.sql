-- recover_alerts: ends open alerts.
-- takes: now timestamptz, ids uuids
-- gives: id uuid
update tidemill.alerts set recovered_at = coalesce(:now::timestamptz, now())
where id = any(:ids::uuid[]) and recovered_at is null
returning id

-- recover_alerts: ends open alerts.
-- takes: now timestamptz, ids uuids
-- gives: id uuid
update tidemill_alerts set recovered_at = :now
where id in (select unhex(value) from json_each(:ids)) and recovered_at is null
returning id

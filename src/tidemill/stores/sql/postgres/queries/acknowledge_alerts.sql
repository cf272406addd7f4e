-- acknowledge_alerts: notes the first person who acknowledges each open alert.
-- takes: now timestamptz, ids uuids, who text
-- gives: id uuid
update tidemill.alerts set acknowledged_at = coalesce(:now::timestamptz, now()), acknowledged_by = :who
where id = any(:ids::uuid[]) and recovered_at is null and acknowledged_at is null
returning id

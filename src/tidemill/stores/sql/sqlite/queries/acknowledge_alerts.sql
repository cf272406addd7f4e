-- acknowledge_alerts: notes the first person who acknowledges each open alert.
-- takes: now timestamptz, ids uuids, who text
-- gives: id uuid
update tidemill_alerts set acknowledged_at = :now, acknowledged_by = :who
where id in (select unhex(value) from json_each(:ids)) and recovered_at is null and acknowledged_at is null
returning id

-- drop_alerts: deletes alerts that recovered long ago.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
delete from tidemill.alerts where recovered_at < coalesce(:now::timestamptz, now()) - :older_than::interval returning id

-- drop_alerts: deletes alerts that recovered long ago.
-- takes: now timestamptz, older_than interval
-- gives: id uuid
delete from tidemill_alerts where recovered_at < :now - :older_than returning id

-- drop_settings: deletes settings; returns the keys that existed.
-- takes: keys texts
-- gives: key text
delete from tidemill.settings where key = any(:keys::text[]) returning key

-- drop_settings: removes settings; answers with the keys that were there.
-- takes: keys texts
-- gives: key text
delete from tidemill.settings where key = any(:keys::text[]) returning key

-- drop_settings: deletes settings; returns the keys that existed.
-- takes: keys texts
-- gives: key text
delete from tidemill_settings where key in (select value from json_each(:keys)) returning key

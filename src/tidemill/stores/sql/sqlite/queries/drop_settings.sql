-- drop_settings: removes settings; answers with the keys that were there.
-- takes: keys texts
-- gives: key text
delete from tidemill_settings where key in (select value from json_each(:keys)) returning key

-- drop_rules: deletes rules; returns the names that existed.
-- takes: names texts
-- gives: name text
delete from tidemill.limits where name = any(:names::text[]) returning name

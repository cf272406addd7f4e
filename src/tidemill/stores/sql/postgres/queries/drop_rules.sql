-- drop_rules: removes rules; the names that were there.
-- takes: names texts
-- gives: name text
delete from tidemill.limits where name = any(:names::text[]) returning name

-- drop_rules: deletes rules; returns the names that existed.
-- takes: names texts
-- gives: name text
delete from temp.tidemill_names
;
insert or ignore into temp.tidemill_names(name) select name from tidemill_limits where name in (select value from json_each(:names))
;
delete from tidemill_limits where name in (select name from temp.tidemill_names)
;
select name from temp.tidemill_names

-- change_breaker: writes a breaker's state if it is still the one that was read.
-- takes: now timestamptz, name text, before text, after text
-- gives: name text
delete from temp.tidemill_names
;
insert or ignore into temp.tidemill_names(name) select name from tidemill_uses where name = :name and breaker is :before
;
update tidemill_uses set breaker = :after, changed_at = :now where name in (select name from temp.tidemill_names)
;
select name from temp.tidemill_names

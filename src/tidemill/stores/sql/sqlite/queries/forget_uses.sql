-- forget_uses: deletes counts of zero that were unchanged for long, and the starts under their names.
-- takes: now timestamptz, idle interval, limit int4
-- gives: name text
delete from temp.tidemill_names
;
insert into temp.tidemill_names(name) select name from tidemill_uses where used = 0 and changed_at < :now - :idle limit :limit
;
delete from tidemill_starts where name in (select name from temp.tidemill_names)
;
delete from tidemill_uses where name in (select name from temp.tidemill_names)
;
select name from temp.tidemill_names

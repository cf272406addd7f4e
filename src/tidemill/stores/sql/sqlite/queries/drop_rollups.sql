-- drop_rollups: deletes the rollups of a scope before an instant; returns their number. Index: the primary keys.
-- takes: scope text, before timestamptz
-- gives: rows int8
select count(*) as rows from tidemill_rollups where scope = :scope and at < :before
;
delete from tidemill_rollups where scope = :scope and at < :before
;
delete from tidemill_rollup_times where scope = :scope and at < :before

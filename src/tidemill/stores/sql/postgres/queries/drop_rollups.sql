-- drop_rollups: deletes the rollups of a scope before an instant; returns their number. Index: the primary keys.
-- takes: scope text, before timestamptz
-- gives: rows int8
with gone as (delete from tidemill.rollups where scope = :scope and at < :before returning 1),
times_gone as (delete from tidemill.rollup_times where scope = :scope and at < :before)
select count(*) as rows from gone

-- drop_failures: deletes the failures before an instant; returns the number of rows. Index: failures_at.
-- takes: before timestamptz
-- gives: rows int8
select count(*) as rows from tidemill_failures where at < :before
;
delete from tidemill_failures where at < :before

-- drop_failures: deletes the failures before an instant; returns the number of rows. Index: failures_at.
-- takes: before timestamptz
-- gives: rows int8
with gone as (delete from tidemill.failures where at < :before returning 1)
select count(*) as rows from gone

-- make_archive_months: nothing; one table holds all months, because SQLite has no partitions.
-- takes: now timestamptz
-- gives: made int4
select 0 as made where :now is not null

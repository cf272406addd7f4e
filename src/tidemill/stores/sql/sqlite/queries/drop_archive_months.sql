-- drop_archive_months: nothing; one table holds all months, because SQLite has no partitions.
-- takes: tier text, ended_before timestamptz
-- gives: dropped int8
select 0 as dropped where :tier is not null and :ended_before is not null

-- drop_archive_months: drops the months whose documents are all due; returns the number of documents.
-- takes: tier text, ended_before timestamptz
-- gives: dropped int8
select tidemill.drop_archive_months(:tier, :ended_before) as dropped

-- drop_depths: deletes the samples before an instant; returns their number. Index: depth_samples_at.
-- takes: before timestamptz
-- gives: rows int8
delete from tidemill_depth_samples where at < :before
;
select changes() as rows

-- drop_depths: deletes the samples before an instant; returns their number. Index: depth_samples_at.
-- takes: before timestamptz
-- gives: rows int8
with gone as (delete from tidemill.depth_samples where at < :before returning 1) select count(*) as rows from gone

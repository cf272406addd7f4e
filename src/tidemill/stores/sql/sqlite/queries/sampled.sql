-- sampled: whether there is a sample of depths of this minute. Index: depth_samples_at.
-- takes: at timestamptz
-- gives: found bool
select exists (select 1 from tidemill_depth_samples where at = :at and unit = 'minute') as found

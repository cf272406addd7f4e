-- compaction_bound: the end of the oldest slot that is compacted.
(select min(:before, min(at) / :step * :step + :step) from tidemill_rollups where unit = :unit)

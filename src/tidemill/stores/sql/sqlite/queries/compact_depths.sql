-- compact_depths: merges samples of a unit into a longer one; returns their number. Index: depth_samples_at.
-- takes: unit text, into text, step interval, before timestamptz
-- gives: rows int8
insert into tidemill_depth_samples(queue, at, unit, pending, scheduled, oldest)
select queue, at / :step * :step, :into, max(pending), max(scheduled), max(oldest)
from tidemill_depth_samples where unit = :unit and at < :before group by 1, 2
on conflict (queue, at, unit) do update
set pending = max(pending, excluded.pending), scheduled = max(scheduled, excluded.scheduled), oldest = max(oldest, excluded.oldest)
;
delete from tidemill_depth_samples where unit = :unit and at < :before
;
select changes() as rows

-- depth_series: the highest depths of each step, of one queue or of the deepest ones. Indexes: the primary key and depth_samples_at.
-- takes: since timestamptz, until timestamptz, step interval, queue text, limit int4
-- gives: queue text, at timestamptz, pending int8, scheduled int8, oldest int8
select queue, date_bin(:step::interval, at, timestamptz 'epoch') as at, max(pending) as pending, max(scheduled) as scheduled,
       max(oldest) as oldest
from tidemill.depth_samples
where at >= :since and at < :until
  and queue = :queue -- when queue
  and queue in (
    select queue from tidemill.depth_samples where at >= :since and at < :until
      and queue = :queue -- when queue
    group by queue order by max(pending) desc, queue limit :limit)
group by 1, 2 order by 1, 2

-- put_depths: stores samples of the depth of queues, and an empty one for queues that were not empty at their latest sample.
-- Returns their number. Indexes: the primary key and depth_samples_at.
-- takes: at timestamptz, since timestamptz, queues texts, pending int8s, scheduled int8s, oldest int8s
-- gives: rows int8
insert into tidemill_depth_samples(queue, at, unit, pending, scheduled, oldest)
select x.queue, :at, 'minute', x.pending, x.scheduled, x.oldest
from (
  select q.value as queue, p.value as pending, s.value as scheduled, o.value as oldest
  from json_each(:queues) q join json_each(:pending) p on p.key = q.key join json_each(:scheduled) s on s.key = q.key
  join json_each(:oldest) o on o.key = q.key
  union all
  select queue, 0, 0, 0
  from (select queue, pending, scheduled, max(at) from tidemill_depth_samples
        where unit = 'minute' and at >= :since and at < :at group by queue)
  where pending + scheduled > 0 and queue not in (select value from json_each(:queues))) x
where true
on conflict do nothing
;
select changes() as rows

-- put_depths: stores samples of the depth of queues, and an empty one for queues that were not empty at their latest sample.
-- Returns their number. Indexes: the primary key and depth_samples_at.
-- takes: at timestamptz, since timestamptz, queues texts, pending int8s, scheduled int8s, oldest int8s
-- gives: rows int8
with latest as (
  select distinct on (queue) queue, pending, scheduled from tidemill.depth_samples
  where unit = 'minute' and at >= :since and at < :at order by queue, at desc),
added as (
  insert into tidemill.depth_samples(queue, at, unit, pending, scheduled, oldest)
  select x.queue, :at::timestamptz, 'minute', x.pending, x.scheduled, x.oldest
  from unnest(:queues::text[], :pending::bigint[], :scheduled::bigint[], :oldest::bigint[]) as x(queue, pending, scheduled, oldest)
  union all
  select queue, :at::timestamptz, 'minute', 0, 0, 0 from latest
  where pending + scheduled > 0 and queue <> all(:queues::text[])
  order by 1
  on conflict do nothing returning 1)
select count(*) as rows from added

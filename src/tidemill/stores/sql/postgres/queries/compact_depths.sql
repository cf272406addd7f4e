-- compact_depths: merges samples of a unit into a longer one; returns their number. Index: depth_samples_at.
-- takes: unit text, into text, step interval, before timestamptz
-- gives: rows int8
with taken as (
  delete from tidemill.depth_samples where unit = :unit and at < :before returning *),
merged as (
  insert into tidemill.depth_samples as s(queue, at, unit, pending, scheduled, oldest)
  select queue, date_bin(:step::interval, at, timestamptz 'epoch'), :into::text, max(pending), max(scheduled), max(oldest)
  from taken group by 1, 2 order by 1, 2
  on conflict (queue, at, unit) do update
  set pending = greatest(s.pending, excluded.pending), scheduled = greatest(s.scheduled, excluded.scheduled),
      oldest = greatest(s.oldest, excluded.oldest))
select count(*) as rows from taken

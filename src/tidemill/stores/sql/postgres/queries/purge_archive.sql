-- purge_archive: deletes documents of a tier whose jobs ended before an instant, the oldest first. Index: archive_ended.
-- takes: tier text, ended_before timestamptz, limit int4
-- gives: id uuid
delete from tidemill.archive where ctid = any(array(
  select ctid from tidemill.archive where tier = :tier and finished_at < :ended_before
  order by finished_at, id limit :limit for update skip locked))
returning id

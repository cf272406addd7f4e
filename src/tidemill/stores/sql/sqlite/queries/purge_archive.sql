-- purge_archive: deletes documents of a tier whose jobs ended before an instant, the oldest first. Index: archive_ended.
-- takes: tier text, ended_before timestamptz, limit int4
-- gives: id uuid
delete from tidemill_archive where id in (
  select id from tidemill_archive indexed by tidemill_archive_ended
  where tier = :tier and finished_at < :ended_before order by finished_at, id limit max(:limit, 0))
returning id

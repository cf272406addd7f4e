-- purge_archive: deletes documents of a tier whose jobs ended before an instant, the oldest first. Index: archive_ended.
-- The blobs that the documents refer to are no longer archived, so the next sweep finds them.
-- takes: tier text, ended_before timestamptz, limit int4
-- gives: id uuid
with gone as (
  delete from tidemill.archive where ctid = any(array(
    select ctid from tidemill.archive where tier = :tier and finished_at < :ended_before
    order by finished_at, id limit :limit for update skip locked))
  returning id),
released as (update tidemill.blobs set archived = false where archived and job_id = any(array(select id from gone)))
select id from gone

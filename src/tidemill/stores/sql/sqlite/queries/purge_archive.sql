-- purge_archive: deletes documents of a tier whose jobs ended before an instant, the oldest first. Index: archive_ended.
-- The blobs that the documents refer to are no longer archived, so the next sweep finds them.
-- takes: tier text, ended_before timestamptz, limit int4
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
select id, 0 from tidemill_archive indexed by tidemill_archive_ended
where tier = :tier and finished_at < :ended_before order by finished_at, id limit max(:limit, 0)
;
delete from tidemill_archive where id in (select id from temp.tidemill_gone)
;
update tidemill_blobs set archived = 0 where archived and job_id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone

-- note_unreachable: notes that waiting jobs can no longer start; the first note stays.
-- takes: now timestamptz, ids uuids, reason text
insert or ignore into tidemill_unreachable_jobs(job_id, reason, created_at)
select unhex(value), :reason, :now from json_each(:ids) where true

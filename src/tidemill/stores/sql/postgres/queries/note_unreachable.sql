-- note_unreachable: notes that waiting jobs can no longer start; the first note stays.
-- takes: now timestamptz, ids uuids, reason text
insert into tidemill.unreachable_jobs(job_id, reason, created_at)
select id, :reason, coalesce(:now::timestamptz, now()) from unnest(:ids::uuid[]) as x(id) order by id on conflict do nothing

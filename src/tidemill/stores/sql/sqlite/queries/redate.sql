-- redate: sets the start of held jobs to now instead of their claim; the jobs are already locked.
-- takes: now timestamptz
-- items: id uuid, token int8
update tidemill_running set claimed_at = :now, started_at = case when started_at is not null then :now end
where id = :id and token = :token

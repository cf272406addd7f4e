-- redate: sets the start of held jobs to now instead of their claim; the jobs are already locked.
-- takes: now timestamptz
-- items: id uuid, token int8
update tidemill.running r
set claimed_at = coalesce(:now::timestamptz, now()),
    started_at = case when r.started_at is not null then coalesce(:now::timestamptz, now()) end
from unnest(:id::uuid[], :token::bigint[]) as x(id, token) where r.id = x.id and r.token = x.token

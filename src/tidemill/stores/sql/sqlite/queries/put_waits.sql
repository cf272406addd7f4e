-- put_waits: writes what suspended jobs wait for. The caller has deleted the waits of earlier executions.
-- Without an instant a job sees events since it was created.
-- items: job_id uuid, tenant text, token int8, name text, match text, event bool, since timestamptz, created_at timestamptz
insert into tidemill_waits(job_id, name, match, event, tenant, since_at, token)
values (:job_id, :name, :match, :event, :tenant, coalesce(:since, :created_at), :token)
on conflict (job_id, event, name, match) do update set since_at = excluded.since_at, token = excluded.token

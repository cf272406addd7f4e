-- put_waits: writes what suspended jobs wait for. The caller has deleted the waits of earlier executions.
-- Without an instant a job sees events since it was created.
-- items: job_id uuid, tenant text, token int8, name text, match text, event bool, since timestamptz, created_at timestamptz
insert into tidemill.waits(job_id, name, match, event, tenant, since_at, token)
select x.job_id, x.name, x.match, x.event, x.tenant, coalesce(x.since, x.created_at), x.token
from unnest(:job_id::uuid[], :tenant::text[], :token::bigint[], :name::text[], :match::text[], :event::boolean[], :since::timestamptz[],
            :created_at::timestamptz[]) as x(job_id, tenant, token, name, match, event, since, created_at)
on conflict (job_id, event, name, match) do update set since_at = excluded.since_at, token = excluded.token

-- append_events: records events, one row for each subscription.
-- takes: now timestamptz
-- items: subscription text, name text, job_id uuid, task text, tenant text, state text, data text
insert into tidemill.job_events(subscription, name, at, job_id, task, tenant, state, data, due_at)
select x.subscription, x.name, coalesce(:now::timestamptz, now()), x.job_id, x.task, x.tenant, x.state, x.data,
  coalesce(:now::timestamptz, now())
from unnest(:subscription::text[], :name::text[], :job_id::uuid[], :task::text[], :tenant::text[], :state::text[], :data::text[])
  with ordinality as x(subscription, name, job_id, task, tenant, state, data, n)
order by x.n

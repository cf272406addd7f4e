-- note_fires: records fires; returns the keys of new ones. Index: fires' primary key.
-- In key order, so that two transactions that write the same fires wait for each other instead of deadlocking.
-- takes: now timestamptz
-- items: schedule_id uuid, fire_at timestamptz, scope_key text, tenant text, job_id uuid, reason text
-- gives: schedule_id uuid, fire_at timestamptz, scope_key text
insert into tidemill.fires(schedule_id, fire_at, scope_key, tenant, job_id, outcome, reason, created_at)
select x.schedule_id, x.fire_at, x.scope_key, x.tenant, x.job_id, case when x.job_id is null then 'skipped' else 'fired' end,
       x.reason, coalesce(:now::timestamptz, now())
from unnest(:schedule_id::uuid[], :fire_at::timestamptz[], :scope_key::text[], :tenant::text[], :job_id::uuid[], :reason::text[])
     with ordinality as x(schedule_id, fire_at, scope_key, tenant, job_id, reason, n)
order by x.schedule_id, x.fire_at, x.scope_key, x.n
on conflict (schedule_id, fire_at, scope_key) do nothing
returning schedule_id, fire_at, scope_key

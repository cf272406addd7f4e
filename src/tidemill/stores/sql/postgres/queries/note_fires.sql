-- note_fires: writes fires down; answers with the keys of those that were not there. Index: fires' primary key.
-- In the order of their keys, so that two who write the same ones wait for each other and do not cross.
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

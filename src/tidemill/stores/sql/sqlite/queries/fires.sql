-- fires: the fires of a schedule and their outcomes, the newest first; at one instant by scope key. Index: fires' primary key.
-- takes: schedule_id uuid, tenant text, before timestamptz, limit int4
-- gives: schedule_id uuid, fire_at timestamptz, scope_key text, tenant text, job_id uuid, reason text, created_at timestamptz
select schedule_id, fire_at, scope_key, tenant, job_id, reason, created_at
from tidemill_fires
where schedule_id = :schedule_id
  and tenant = :tenant -- when tenant
  and fire_at < :before -- when before
order by fire_at desc, scope_key limit max(:limit, 0)

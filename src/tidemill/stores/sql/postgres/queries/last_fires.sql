-- last_fires: the newest fire of each schedule under a scope key. Indexes: fires_nodes for a node's, else fires' primary key.
-- takes: ids uuids, scope_key text
-- gives: schedule_id uuid, fire_at timestamptz, scope_key text, tenant text, job_id uuid, reason text, created_at timestamptz
select f.schedule_id, f.fire_at, f.scope_key, f.tenant, f.job_id, f.reason, f.created_at
from unnest(:ids::uuid[]) as x(id)
cross join lateral (
  select * from tidemill.fires f
  where f.schedule_id = x.id and f.scope_key = :scope_key
    and f.scope_key <> '' -- when node
  order by f.fire_at desc limit 1) f

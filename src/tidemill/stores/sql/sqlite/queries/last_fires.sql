-- last_fires: the newest fire of each schedule under a scope key. Indexes: fires_nodes for a node's, else fires' primary key.
-- takes: ids uuids, scope_key text
-- gives: schedule_id uuid, fire_at timestamptz, scope_key text, tenant text, job_id uuid, reason text, created_at timestamptz
select l.schedule_id, l.fire_at, l.scope_key, l.tenant, l.job_id, l.reason, l.created_at
from json_each(:ids) x
cross join tidemill_fires l on l.schedule_id = unhex(x.value) and l.scope_key = :scope_key
  and l.fire_at = (
    select f.fire_at from tidemill_fires f
    where f.schedule_id = unhex(x.value) and f.scope_key = :scope_key
      and f.scope_key <> '' -- when node
    order by f.fire_at desc limit 1)

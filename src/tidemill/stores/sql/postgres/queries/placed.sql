-- placed: the placements of these tenants, or of all, by tenant.
-- takes: tenants texts
-- gives: tenant text, shard text, state text, target text, former text, epoch int8, changed_at timestamptz
select tenant, shard, state, target, former, epoch, changed_at
from tidemill.placements
where true
  and tenant = any(:tenants::text[]) -- when tenants
order by tenant

-- replace_placement: changes the placement of a tenant from the epoch that was read; returns the tenant if it did.
-- takes: now timestamptz, epoch int8, tenant text, shard text, state text, target text, former text
-- gives: tenant text
update tidemill_placements
set shard = :shard, state = :state, target = :target, former = :former, epoch = epoch + 1,
  changed_at = :now
where tenant = :tenant and epoch = :epoch
returning tenant

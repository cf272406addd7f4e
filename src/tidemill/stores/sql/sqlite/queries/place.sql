-- place: inserts the placement of a tenant that has none; the primary key decides between two callers.
-- takes: now timestamptz, tenant text, shard text, state text, target text, former text
-- gives: tenant text
insert into tidemill_placements(tenant, shard, state, target, former, epoch, changed_at)
values (:tenant, :shard, :state, :target, :former, 1, :now)
on conflict (tenant) do nothing
returning tenant

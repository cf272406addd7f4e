-- copy_placement: stores a placement as it is, unless the same or a later epoch is stored.
-- takes: epoch int8, changed_at timestamptz, tenant text, shard text, state text, target text, former text
-- gives: tenant text
insert into tidemill.placements as p (tenant, shard, state, target, former, epoch, changed_at)
values (:tenant, :shard, :state, :target, :former, :epoch, :changed_at)
on conflict (tenant) do update set
  shard = excluded.shard, state = excluded.state, target = excluded.target, former = excluded.former,
  epoch = excluded.epoch, changed_at = excluded.changed_at
where p.epoch < excluded.epoch
returning tenant

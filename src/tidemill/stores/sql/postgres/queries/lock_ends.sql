-- lock_ends: locks the counter rows into which the ends of these jobs and groups count, by id and shard. Their rows are locked already.
-- takes: ids uuids
-- gives: locked int8
with ending as materialized (select x.id from unnest(:ids::uuid[]) as x(id)),
-- include: lock_counters
select count(*) as locked from locked

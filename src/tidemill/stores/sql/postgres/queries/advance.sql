-- advance: advances schedules, each only from the position that was read and while it may fire; returns the lost ids.
-- Locks the definitions, so that none is disabled before the fire is committed, then the schedules in order. Rows that it waited
-- for are read again after the wait. Indexes: both primary keys.
-- items: id uuid, revision int4, expected_fire_at timestamptz, last_fire_at timestamptz, next_fire_at timestamptz
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :revision::int[], :expected_fire_at::timestamptz[], :last_fire_at::timestamptz[],
                       :next_fire_at::timestamptz[]) as x(id, revision, expected_fire_at, last_fire_at, next_fire_at)),
owner as materialized (
  select d.id, d.enabled and d.deleted_at is null as fires from tidemill.definitions d
  where d.id = any(array(select s.definition_id from tidemill.schedules s where s.id = any(:id::uuid[])))
  order by d.id for share),
standing as materialized (
  select s.id from tidemill.schedules s
  where s.id = any(:id::uuid[]) and s.enabled
    and (s.definition_id is null or s.definition_id = any(array(select id from owner where fires)))
  order by s.id for no key update),
moved as (
  update tidemill.schedules s set last_fire_at = x.last_fire_at, next_fire_at = x.next_fire_at
  from item x
  where s.id = x.id and s.id = any(array(select id from standing))
    and s.revision = x.revision and s.last_fire_at is not distinct from x.expected_fire_at and s.enabled
  returning s.id)
select id from item except select id from moved

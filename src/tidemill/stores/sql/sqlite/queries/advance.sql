-- advance: advances schedules, each only from the position that was read and while it may fire; returns the lost ids.
-- A write transaction excludes other writers, so nothing is locked. Indexes: both primary keys.
-- items: id uuid, revision int4, expected_fire_at timestamptz, last_fire_at timestamptz, next_fire_at timestamptz
-- gives: id uuid
delete from temp.tidemill_lost
;
insert into temp.tidemill_lost(id)
select :id
where not exists (
  select 1 from tidemill_schedules s
  where s.id = :id and s.revision = :revision and s.last_fire_at is :expected_fire_at and s.enabled
    and (s.definition_id is null
         or exists (select 1 from tidemill_definitions d where d.id = s.definition_id and d.enabled and d.deleted_at is null)))
;
update tidemill_schedules set last_fire_at = :last_fire_at, next_fire_at = :next_fire_at
where id = :id and id not in (select id from temp.tidemill_lost)
;
select id from temp.tidemill_lost

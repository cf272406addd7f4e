-- last_fires: the newest fire of each schedule under a scope key. Indexes: fires_nodes for a node's, else fires' primary key.
-- takes: ids uuids, scope_key text
-- gives: schedule_id uuid, fire_at timestamptz
select schedule_id, fire_at from (
  select unhex(x.value) as schedule_id,
         (select f.fire_at from tidemill_fires f
          where f.schedule_id = unhex(x.value) and f.scope_key = :scope_key
            and f.scope_key <> '' -- when node
          order by f.fire_at desc limit 1) as fire_at
  from json_each(:ids) x)
where fire_at is not null

-- put_groups: inserts groups; returns the ids of those that were inserted. A group whose key another one has is left out.
-- takes: now timestamptz
-- items: id uuid, tenant text, kind text, name text, key text, rules text, group_id uuid, group_shard int2, created_by text
-- items: expires_at timestamptz, held int4, correlation_id text
-- gives: id uuid
delete from temp.tidemill_reopened
;
insert into temp.tidemill_reopened(id, state)
select :id, null where not exists (select 1 from tidemill_flows f where f.id = :id)
  and (:key is null or not exists (select 1 from tidemill_flows f where f.tenant = :tenant and f.name = :name and f.key = :key))
;
insert into tidemill_flows(id, tenant, kind, name, key, state, created_at, rules, group_id, group_shard, created_by, expires_at, held,
                           correlation_id)
select :id, :tenant, :kind, :name, :key, 'running', :now, :rules, :group_id, :group_shard, :created_by, :expires_at, :held,
       :correlation_id
where exists (select 1 from temp.tidemill_reopened r where r.id = :id)
;
select id from temp.tidemill_reopened

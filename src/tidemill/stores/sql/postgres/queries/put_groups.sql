-- put_groups: inserts groups; returns the ids of those that were inserted. A group whose key another one has is left out.
-- takes: now timestamptz
-- items: id uuid, tenant text, kind text, name text, key text, rules text, group_id uuid, group_shard int2, created_by text
-- items: expires_at timestamptz, held int4, correlation_id text
-- gives: id uuid
insert into tidemill.flows(id, tenant, kind, name, key, state, created_at, rules, group_id, group_shard, created_by, expires_at, held,
                           correlation_id)
select x.id, x.tenant, x.kind, x.name, x.key, 'running', coalesce(:now::timestamptz, now()), x.rules::jsonb, x.group_id, x.group_shard,
       x.created_by, x.expires_at, x.held, x.correlation_id
from unnest(:id::uuid[], :tenant::text[], :kind::text[], :name::text[], :key::text[], :rules::text[], :group_id::uuid[],
            :group_shard::smallint[], :created_by::text[], :expires_at::timestamptz[], :held::int[], :correlation_id::text[])
  as x(id, tenant, kind, name, key, rules, group_id, group_shard, created_by, expires_at, held, correlation_id)
on conflict do nothing
returning id

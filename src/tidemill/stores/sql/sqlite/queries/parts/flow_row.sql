-- flow_row: a group, in the order that Python expects.
-- gives: id uuid, tenant text, kind text, name text, key text, state text, created_at timestamptz, rules json, group_id uuid
-- gives: group_shard int2, created_by text, expires_at timestamptz, ended_at timestamptz, cancel_reason text, stops bool, round int4
-- gives: held int4, correlation_id text
id, tenant, kind, name, key, state, created_at, rules, group_id, group_shard, created_by, expires_at, ended_at, cancel_reason,
stops, round, held, correlation_id

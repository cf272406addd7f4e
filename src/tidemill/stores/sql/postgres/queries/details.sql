-- details: the details of jobs.
-- takes: ids uuids
-- gives: id uuid, correlation_id text, parent_id uuid, reference_type text, reference_id text, tags json, metadata json
-- gives: headers json, options json, definition_id uuid, definition_version int4, schedule_id uuid, fire_at timestamptz
-- gives: flow_id uuid, node text, position int4, group_id uuid, group_shard int2, may_fail bool
select id, correlation_id, parent_id, reference_type, reference_id, tags, metadata, headers, options, definition_id,
       definition_version, schedule_id, fire_at, flow_id, node, position, group_id, group_shard, may_fail
from tidemill.details where id = any(:ids::uuid[])

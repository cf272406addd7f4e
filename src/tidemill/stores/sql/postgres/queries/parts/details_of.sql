-- details_of: inserts the details of new jobs, which are a JSON object.
described as (
  insert into tidemill.details(id, tenant, correlation_id, parent_id, reference_type, reference_id, tags, metadata, headers,
                               options, definition_id, definition_version, schedule_id, fire_at, flow_id, node, position,
                               group_id, group_shard, may_fail)
  select f.id, f.tenant, d.correlation_id, d.parent_id, d.reference_type, d.reference_id, d.tags, d.metadata, d.headers,
         d.options, d.definition_id, d.definition_version, d.schedule_id, d.fire_at, d.flow_id, d.node, d.position, d.group_id,
         d.group_shard, coalesce(d.may_fail, false)
  from {jobs} f cross join lateral jsonb_to_record(f.details::jsonb)
       as d(correlation_id text, parent_id uuid, reference_type text, reference_id text, tags jsonb, metadata jsonb,
            headers jsonb, options jsonb, definition_id uuid, definition_version int, schedule_id uuid, fire_at timestamptz,
            flow_id uuid, node text, position int, group_id uuid, group_shard smallint, may_fail boolean)
  where f.details is not null)

-- flow_jobs: the ids of the jobs of a flow, or of the members of a group with their positions.
-- Indexes: details_flow, details_group.
-- takes: flow_id uuid, after_id uuid, group_id uuid, after int4, limit int4
-- gives: id uuid, position int4
select id, position from tidemill.details
where true
  and flow_id = :flow_id::uuid -- when flow_id
  and id > :after_id::uuid -- when after_id
  and group_id = :group_id::uuid -- when group_id
  and position > :after::int -- when group_id
order by
  position, -- when group_id
  id limit :limit

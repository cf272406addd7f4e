-- details_of: inserts the details of new jobs, which are a JSON object.
insert into tidemill_details(id, tenant, correlation_id, parent_id, reference_type, reference_id, tags, metadata, headers,
                             options, definition_id, definition_version, schedule_id, fire_at, flow_id, node, position, group_id, group_shard,
                             may_fail)
select id, tenant, json_extract(details, '$.correlation_id'), unhex(replace(json_extract(details, '$.parent_id'), '-', '')),
       json_extract(details, '$.reference_type'), json_extract(details, '$.reference_id'), json_extract(details, '$.tags'),
       json_extract(details, '$.metadata'), json_extract(details, '$.headers'), json_extract(details, '$.options'),
       unhex(replace(json_extract(details, '$.definition_id'), '-', '')), json_extract(details, '$.definition_version'),
       unhex(replace(json_extract(details, '$.schedule_id'), '-', '')),
       strftime('%s', substr(json_extract(details, '$.fire_at'), 1, 19)) * 1000000
         + case substr(json_extract(details, '$.fire_at'), 20, 1)
           when '.' then cast(substr(json_extract(details, '$.fire_at'), 21, 6) as integer) else 0 end,
       unhex(replace(json_extract(details, '$.flow_id'), '-', '')), json_extract(details, '$.node'),
       json_extract(details, '$.position'), unhex(replace(json_extract(details, '$.group_id'), '-', '')),
       json_extract(details, '$.group_shard'), coalesce(json_extract(details, '$.may_fail'), 0)
from {jobs} and details is not null

-- details: the details of jobs.
-- takes: ids uuids
-- gives: id uuid, correlation_id text, parent_id uuid, reference_type text, reference_id text, tags json, metadata json
-- gives: headers json, options json, definition_id uuid, definition_version int4, schedule_id uuid, fire_at timestamptz
select id, correlation_id, parent_id, reference_type, reference_id, tags, metadata, headers, options, definition_id,
       definition_version, schedule_id, fire_at
from tidemill_details where id in (select unhex(value) from json_each(:ids))

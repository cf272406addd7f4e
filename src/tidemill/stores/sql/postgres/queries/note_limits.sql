-- note_limits: records the limits that held jobs were counted against, if these are more than their own.
-- items: id uuid, limits text
update tidemill.running r set limits = x.limits
from unnest(:id::uuid[], :limits::text[]) as x(id, limits) where r.id = x.id

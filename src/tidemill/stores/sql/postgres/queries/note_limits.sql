-- note_limits: the limits that held jobs were counted against, where these are more than their own.
-- items: id uuid, limits text
update tidemill.running r set limits = x.limits
from unnest(:id::uuid[], :limits::text[]) as x(id, limits) where r.id = x.id

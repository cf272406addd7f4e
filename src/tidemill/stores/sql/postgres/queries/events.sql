-- events: events since an instant, the oldest first, or before one, the newest first.
-- Indexes: events_match with a match, events_name with a name, otherwise events_created.
-- takes: tenant text, name text, match text, since timestamptz, before_at timestamptz, before_id uuid, limit int4
-- gives: id uuid, tenant text, name text, match text, payload text, source text, created_at timestamptz
select e.id, e.tenant, e.name, e.match, e.payload, e.source, e.created_at
from tidemill.events e
where true
  and e.tenant = :tenant -- when tenant
  and e.name = :name -- when name
  and e.match = :match -- when match
  and e.created_at >= :since -- when since
  and (e.created_at, e.id) < (:before_at, :before_id) -- when before_id
order by e.created_at, e.id -- when oldest
order by e.created_at desc, e.id desc -- when newest
limit :limit

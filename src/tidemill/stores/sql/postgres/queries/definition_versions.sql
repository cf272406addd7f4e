-- definition_versions: every version of a definition, the oldest first. Indexes: both primary keys.
-- takes: id uuid, tenant text
-- gives: id uuid, tenant text, first_at timestamptz, first_by text, version int4, body text, created_at timestamptz
-- gives: created_by text
select d.id, d.tenant, d.created_at as first_at, d.created_by as first_by, v.version, v.body, v.created_at, v.created_by
from tidemill.definitions d join tidemill.definition_versions v on v.definition_id = d.id
where d.id = :id
  and d.tenant = :tenant -- when tenant
order by v.version

-- archived_flows: the documents of flows by id.
-- takes: ids uuids, tenant text
-- gives: id uuid, tenant text, kind text, name text, key text, state text, created_at timestamptz, ended_at timestamptz, tier text
-- gives: policy text, summary text, document text, fingerprint text, archived_at timestamptz
select id, tenant, kind, name, key, state, created_at, ended_at, tier, policy, summary, document, fingerprint, archived_at
from tidemill.archived_flows where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
order by id

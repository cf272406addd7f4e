-- archived: documents by id.
-- takes: tenant text, ids uuids
-- gives: id uuid, tenant text, task text, queue text, state text, token int8, created_at timestamptz, finished_at timestamptz
-- gives: correlation_id text, parent_id uuid, tier text, policy text, document text, fingerprint text, archived_at timestamptz
select id, tenant, task, queue, state, token, created_at, finished_at, correlation_id, parent_id, tier, policy, document,
       fingerprint, archived_at
from tidemill.archive
where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
order by id

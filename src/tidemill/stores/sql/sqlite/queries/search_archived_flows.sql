-- search_archived_flows: a page of matching archived flows without their documents, the newest first.
-- takes: tenant text, after uuid, kinds texts, name text, key text, states texts, limit int4
-- gives: id uuid, tenant text, kind text, name text, key text, state text, created_at timestamptz, ended_at timestamptz, tier text
-- gives: policy text, summary text, document text, fingerprint text, archived_at timestamptz
select id, tenant, kind, name, key, state, created_at, ended_at, tier, policy, summary, '' as document, fingerprint, archived_at
from tidemill_archived_flows
where true
  and tenant = :tenant -- when tenant
  and id < :after -- when after
  and kind in (select value from json_each(:kinds)) -- when kinds
  and name = :name -- when name
  and key = :key -- when key
  and state in (select value from json_each(:states)) -- when states
order by id desc limit :limit

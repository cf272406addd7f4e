-- archived_due: documents of a selection of one tier, the longest ended first. Index: archive_ended.
-- takes: tier text, limit int4
-- gives: id uuid, tenant text, task text, queue text, state text, token int8, created_at timestamptz, finished_at timestamptz
-- gives: correlation_id text, parent_id uuid, tier text, policy text, document text, fingerprint text, archived_at timestamptz
-- include: other_rules
select id, tenant, task, queue, state, token, created_at, finished_at, correlation_id, parent_id, tier, policy, document,
       fingerprint, archived_at
from tidemill.archive
where tier = :tier and
  -- include: governed
order by finished_at, id limit :limit

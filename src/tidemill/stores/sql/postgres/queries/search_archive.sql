-- search_archive: one page of archived jobs, in the order of their ids.
-- takes: tenant text, states texts, task text, tasks texts, queues texts
-- takes: ids uuids, created_after timestamptz
-- takes: created_before timestamptz, correlation_id text, parent_id uuid, tiers texts, below uuid, above uuid, limit int4
-- gives: id uuid, tenant text, task text, queue text, state text, token int8, created_at timestamptz, finished_at timestamptz
-- gives: correlation_id text, parent_id uuid, tier text, policy text, document text, fingerprint text, archived_at timestamptz
select id, tenant, task, queue, state, token, created_at, finished_at, correlation_id, parent_id, tier, policy, document,
       fingerprint, archived_at
from tidemill.archive
where true
  and tenant = :tenant -- when tenant
  and state = any(:states::text[]) -- when states
  and task = :task -- when task
  and task = any(:tasks::text[]) -- when tasks
  and queue = any(:queues::text[]) -- when queues
  and id = any(:ids::uuid[]) -- when ids
  and created_at >= :created_after -- when created_after
  and created_at < :created_before -- when created_before
  and correlation_id = :correlation_id -- when correlation_id
  and parent_id = :parent_id -- when parent_id
  and tier = any(:tiers::text[]) -- when tiers
  and id < :below -- when below
  and id > :above -- when above
order by id desc -- when newest
order by id -- when oldest
limit :limit

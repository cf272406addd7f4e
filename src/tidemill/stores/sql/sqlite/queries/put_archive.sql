-- put_archive: writes documents; an existing one is replaced.
-- takes: now timestamptz
-- items: id uuid, tenant text, task text, queue text, state text, token int8, created_at timestamptz, finished_at timestamptz
-- items: correlation_id text, parent_id uuid, tier text, policy text, document text, fingerprint text
insert into tidemill_archive(id, tenant, task, queue, state, token, created_at, finished_at, correlation_id, parent_id, tier,
                             policy, document, fingerprint, archived_at)
values (:id, :tenant, :task, :queue, :state, :token, :created_at, :finished_at, :correlation_id, :parent_id, :tier, :policy,
        :document, :fingerprint, :now)
on conflict (id) do update set
  tenant = excluded.tenant, task = excluded.task, queue = excluded.queue, state = excluded.state, token = excluded.token,
  created_at = excluded.created_at, finished_at = excluded.finished_at, correlation_id = excluded.correlation_id,
  parent_id = excluded.parent_id, tier = excluded.tier, policy = excluded.policy, document = excluded.document,
  fingerprint = excluded.fingerprint, archived_at = excluded.archived_at

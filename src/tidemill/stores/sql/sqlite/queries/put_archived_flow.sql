-- put_archived_flow: writes the document of a flow; an existing one is replaced.
-- takes: id uuid, tenant text, kind text, name text, key text, state text, created_at timestamptz, ended_at timestamptz, tier text
-- takes: policy text, summary text, document text, fingerprint text, now timestamptz
insert into tidemill_archived_flows(id, tenant, kind, name, key, state, created_at, ended_at, tier, policy, summary, document, fingerprint,
                                    archived_at)
values (:id, :tenant, :kind, :name, :key, :state, :created_at, :ended_at, :tier, :policy, :summary, :document, :fingerprint, :now)
on conflict (id) do update set
  state = excluded.state, ended_at = excluded.ended_at, tier = excluded.tier, policy = excluded.policy,
  summary = excluded.summary, document = excluded.document, fingerprint = excluded.fingerprint, archived_at = excluded.archived_at

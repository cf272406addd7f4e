-- register: inserts a new worker with a lease.
-- takes: now timestamptz, id uuid, name text, host text, pid int8, node text, version text, queues text, tasks text
-- takes: concurrency int4, state text, lease interval, schema_version int4, supervisor uuid, place int4, report text
-- gives: started_at timestamptz, expires_at timestamptz
insert into tidemill_workers(id, name, host, pid, node, version, queues, tasks, concurrency, state, started_at, beat_at,
                             expires_at, beats, schema_version, supervisor, place, report)
values (:id, :name, :host, :pid, :node, :version, :queues, :tasks, :concurrency, :state, :now, :now, :now + :lease, 0, :schema_version,
        :supervisor, :place, :report)
returning started_at, expires_at

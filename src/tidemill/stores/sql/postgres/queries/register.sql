-- register: inserts a new worker with a lease.
-- takes: now timestamptz, id uuid, name text, host text, pid int8, node text, version text, queues text, tasks text
-- takes: concurrency int4, state text, lease interval, schema_version int4, supervisor uuid, place int4, report text
-- gives: started_at timestamptz, expires_at timestamptz
insert into tidemill.workers(id, name, host, pid, node, version, queues, tasks, concurrency, state, started_at, beat_at,
                             expires_at, beats, schema_version, supervisor, place, report)
select :id::uuid, :name::text, :host::text, :pid::bigint, :node::text, :version::text, :queues::text,
       :tasks::text, :concurrency::int, :state::text, c.now, c.now, c.now + :lease::interval, 0, :schema_version::int, :supervisor::uuid,
       :place::int, :report::text
from (select coalesce(:now::timestamptz, now()) as now) c
returning started_at, expires_at

-- register: inserts a new worker with a lease.
-- takes: now timestamptz, id uuid, name text, host text, pid int8, node text, version text, queues text, tasks text
-- takes: concurrency int4, state text, lease interval
-- gives: started_at timestamptz, expires_at timestamptz
insert into tidemill.workers(id, name, host, pid, node, version, queues, tasks, concurrency, state, started_at, beat_at,
                             expires_at, beats)
select :id::uuid, :name::text, :host::text, :pid::bigint, :node::text, :version::text, :queues::text,
       :tasks::text, :concurrency::int, :state::text, c.now, c.now, c.now + :lease::interval, 0
from (select coalesce(:now::timestamptz, now()) as now) c
returning started_at, expires_at

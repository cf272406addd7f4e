-- workers: all workers, the newest first.
-- gives: id uuid, name text, host text, pid int8, node text, version text, queues text, tasks text, concurrency int4
-- gives: state text, started_at timestamptz, beat_at timestamptz, expires_at timestamptz, beats int8
select id, name, host, pid, node, version, queues, tasks, concurrency, state, started_at, beat_at, expires_at, beats
from tidemill_workers order by started_at desc, id desc

-- workers: all workers, the newest first, and whether each is paused.
-- gives: id uuid, name text, host text, pid int8, node text, version text, queues text, tasks text, concurrency int4
-- gives: state text, started_at timestamptz, beat_at timestamptz, expires_at timestamptz, beats int8
-- gives: supervisor uuid, place int4, report text, paused bool
select w.id, w.name, w.host, w.pid, w.node, w.version, w.queues, w.tasks, w.concurrency, w.state, w.started_at, w.beat_at,
       w.expires_at, w.beats, w.supervisor, w.place, w.report, p.place is not null as paused
from tidemill_workers w left join tidemill_worker_pauses p on p.supervisor = w.supervisor and p.place = w.place
order by w.started_at desc, w.id desc

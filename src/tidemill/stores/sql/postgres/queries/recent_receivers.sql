-- recent_receivers: suspended jobs whose signal or event arrived within a duration, or one event. Read only.
-- It starts from the signals and events, so jobs that wait for anything else cost nothing.
-- Indexes: signals_created, events_created, waits' primary key, waits_event, parked's primary key.
-- takes: now timestamptz, within interval, event_id uuid, limit int4
-- gives: id uuid, tenant text, queue text
with named as (
  select w.job_id, w.token from tidemill.signals s join tidemill.waits w on w.job_id = s.job_id and w.name = s.name and not w.event -- when signals
  where s.taken_at is null -- when signals
    and s.created_at >= coalesce(:now::timestamptz, now()) - :within::interval -- when within
  union -- when signals
  select w.job_id, w.token from tidemill.events e
  join tidemill.waits w on w.event and w.tenant = e.tenant and w.name = e.name and w.match in ('', e.match) and w.since_at <= e.created_at
  where true
    and e.created_at >= coalesce(:now::timestamptz, now()) - :within::interval -- when within
    and e.id = :event_id -- when event_id
)
select p.id, p.tenant, p.queue
from named n join tidemill.parked p on p.id = n.job_id and p.token = n.token and p.state = 'waiting'
order by p.id limit :limit

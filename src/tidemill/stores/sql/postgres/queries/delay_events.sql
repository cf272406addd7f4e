-- delay_events: counts a failed attempt of events and lets them wait.
-- takes: now timestamptz
-- items: seq int8, delay interval, error text
update tidemill.job_events e
set attempts = e.attempts + 1, due_at = coalesce(:now::timestamptz, now()) + x.delay, error = x.error
from unnest(:seq::bigint[], :delay::interval[], :error::text[]) as x(seq, delay, error)
where e.seq = x.seq

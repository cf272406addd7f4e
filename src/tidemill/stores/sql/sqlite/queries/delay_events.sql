-- delay_events: counts a failed attempt of events and lets them wait.
-- takes: now timestamptz
-- items: seq int8, delay interval, error text
update tidemill_job_events set attempts = attempts + 1, due_at = :now + :delay, error = :error where seq = :seq

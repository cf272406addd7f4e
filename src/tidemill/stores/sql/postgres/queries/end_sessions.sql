-- end_sessions: ends sessions as of now; returns those that had not ended before.
-- takes: now timestamptz, ids texts
-- gives: id text
update tidemill.sessions set ended_at = coalesce(:now::timestamptz, now()) where id = any(:ids::text[]) and ended_at is null returning id

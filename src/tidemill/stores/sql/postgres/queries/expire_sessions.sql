-- expire_sessions: deletes the sessions whose time has passed. Index sessions_expiry.
-- takes: now timestamptz
delete from tidemill.sessions where expires_at <= coalesce(:now::timestamptz, now())

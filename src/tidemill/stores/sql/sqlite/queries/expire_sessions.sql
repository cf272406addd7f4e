-- expire_sessions: deletes the sessions whose time has passed. Index sessions_expiry.
-- takes: now timestamptz
delete from tidemill_sessions where expires_at <= :now

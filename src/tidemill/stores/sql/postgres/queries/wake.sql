-- wake: notifies all listeners of a channel. A hint need not be flushed to disk, so its commit does not wait for that.
-- PostgreSQL only: SQLite's wake-ups are sent outside of the database.
-- takes: channel text, payload text
-- gives: flushed text, sent text
select set_config('synchronous_commit', 'off', true) as flushed, pg_notify(:channel, :payload)::text as sent

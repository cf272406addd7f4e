-- wake: tells everybody who listens on a channel. A hint needs no flush to disk, so its commit does not wait for one.
-- Only here: SQLite's wake-ups travel outside of the database.
-- takes: channel text, payload text
-- gives: flushed text, sent text
select set_config('synchronous_commit', 'off', true) as flushed, pg_notify(:channel, :payload)::text as sent

-- unread_signals: the number of unread signals, and the oldest of them. Index: signals_created.
-- gives: unread int8, oldest_at timestamptz
select count(*) as unread, min(created_at) as oldest_at from tidemill.signals where taken_at is null

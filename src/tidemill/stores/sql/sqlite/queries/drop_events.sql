-- drop_events: deletes events that are older than a duration, the oldest first. Index: events_created.
-- takes: now timestamptz, older_than interval, limit int4
-- gives: id uuid
delete from tidemill_events where id in (
  select id from tidemill_events where created_at < :now - :older_than order by created_at, id limit max(:limit, 0))
returning id

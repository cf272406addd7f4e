-- drop_events: deletes events that are older than a duration, the oldest first. Index: events_created.
-- takes: now timestamptz, older_than interval, limit int4
-- gives: id uuid
delete from tidemill.events where id = any(array(
  select id from tidemill.events where created_at < coalesce(:now::timestamptz, now()) - :older_than::interval order by created_at, id limit :limit for update skip locked))
returning id

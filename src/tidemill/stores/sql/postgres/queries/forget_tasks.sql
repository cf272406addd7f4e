-- forget_tasks: deletes the records of tasks that were last seen before an instant; returns their names.
-- takes: seen_before timestamptz
-- gives: name text
delete from tidemill.tasks where seen_at < :seen_before::timestamptz returning name

-- reseal_scheduled_args: replaces the arguments of a job in tidemill.scheduled, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill.scheduled set args = :new where id = :id and args = :old returning id

-- reseal_running_args: replaces the arguments of a job in tidemill.running, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill.running set args = :new where id = :id and args = :old returning id

-- reseal_running_args: replaces the arguments of a job in tidemill_running, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill_running set args = :new where id = :id and args = :old returning id

-- reseal_ready_args: replaces the arguments of a job in tidemill_ready, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill_ready set args = :new where id = :id and args = :old returning id

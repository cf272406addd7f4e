-- reseal_history_args: replaces the arguments of a job in tidemill.history, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill.history set args = :new where id = :id and args = :old returning id

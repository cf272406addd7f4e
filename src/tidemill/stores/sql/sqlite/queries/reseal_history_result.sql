-- reseal_history_result: replaces the result of a job in tidemill_history, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill_history set result = :new where id = :id and result = :old returning id

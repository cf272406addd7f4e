-- reseal_parked_result: replaces the result of a job in tidemill.parked, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill.parked set result = :new where id = :id and result = :old returning id

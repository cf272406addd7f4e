-- reseal_parked_args: replaces the arguments of a job in tidemill_parked, unless they changed. Index: id.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill_parked set args = :new where id = :id and args = :old returning id

-- reseal_definitions: replaces the arguments of a definition, unless they changed. Index: primary key.
-- takes: id uuid, old text, new text
-- gives: id uuid
update tidemill_definitions set args = :new where id = :id and args = :old returning id

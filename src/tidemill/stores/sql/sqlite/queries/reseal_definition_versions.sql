-- reseal_definition_versions: replaces the body of a version, unless it changed. Index: primary key.
-- takes: id uuid, name text, old text, new text
-- gives: definition_id uuid
update tidemill_definition_versions set body = :new
where definition_id = :id and version = cast(:name as integer) and body = :old
returning definition_id

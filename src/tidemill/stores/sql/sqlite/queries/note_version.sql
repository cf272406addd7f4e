-- note_version: keeps what a definition is from the write on that was just made.
-- takes: id uuid, body text, by text
insert into tidemill_definition_versions(definition_id, version, body, created_at, created_by)
select id, version, :body, updated_at, :by from tidemill_definitions where id = :id

-- note_version: records the new version of a definition.
-- takes: id uuid, body text, by text
insert into tidemill_definition_versions(definition_id, version, body, created_at, created_by)
select id, version, :body, updated_at, :by from tidemill_definitions where id = :id

-- forget_definitions: deletes definitions without schedules, and their versions; returns the deleted ids.
-- takes: tenant text, ids uuids
-- gives: id uuid
with chosen as materialized (
  select d.id from tidemill.definitions d
  where d.id = any(:ids::uuid[]) and d.tenant = :tenant
    and not exists (select from tidemill.schedules s where s.definition_id = d.id)),
versions_gone as (delete from tidemill.definition_versions where definition_id = any(array(select id from chosen)))
delete from tidemill.definitions where id = any(array(select id from chosen)) returning id

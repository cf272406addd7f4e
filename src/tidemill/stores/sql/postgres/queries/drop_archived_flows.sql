-- drop_archived_flows: deletes archived flows by id, or all of a tenant; returns their ids.
-- takes: ids uuids, tenant text
-- gives: id uuid
delete from tidemill.archived_flows
where true
  and id = any(:ids::uuid[]) -- when ids
  and tenant = :tenant -- when tenant
returning id

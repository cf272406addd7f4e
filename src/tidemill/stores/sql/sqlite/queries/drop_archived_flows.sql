-- drop_archived_flows: deletes archived flows by id, or all of a tenant; returns their ids.
-- takes: ids uuids, tenant text
-- gives: id uuid
delete from tidemill_archived_flows
where true
  and id in (select unhex(value) from json_each(:ids)) -- when ids
  and tenant = :tenant -- when tenant
returning id

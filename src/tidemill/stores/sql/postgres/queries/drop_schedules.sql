-- drop_schedules: deletes schedules, not their fires; returns those that existed.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from tidemill.schedules
where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
returning id

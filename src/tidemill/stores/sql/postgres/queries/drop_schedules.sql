-- drop_schedules: removes schedules, not their fires; those that were there.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from tidemill.schedules
where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
returning id

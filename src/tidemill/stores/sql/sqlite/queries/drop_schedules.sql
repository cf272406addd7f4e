-- drop_schedules: removes schedules, not their fires; those that were there.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from tidemill_schedules
where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
returning id

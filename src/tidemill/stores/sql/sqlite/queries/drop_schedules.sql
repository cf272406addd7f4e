-- drop_schedules: deletes schedules, not their fires; returns those that existed.
-- takes: tenant text, ids uuids
-- gives: id uuid
delete from tidemill_schedules
where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
returning id

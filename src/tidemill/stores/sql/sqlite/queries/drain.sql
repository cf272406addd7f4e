-- drain: asks active workers to claim no more jobs; returns those that were active.
-- takes: ids uuids
-- gives: id uuid
update tidemill_workers set state = 'draining' where id in (select unhex(value) from json_each(:ids)) and state = 'active' returning id

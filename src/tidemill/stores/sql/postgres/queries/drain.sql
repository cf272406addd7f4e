-- drain: asks active workers to claim no more jobs; returns those that were active.
-- takes: ids uuids
-- gives: id uuid
update tidemill.workers set state = 'draining' where id = any(:ids::uuid[]) and state = 'active' returning id

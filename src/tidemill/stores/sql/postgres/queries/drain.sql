-- drain: asks active workers to claim nothing more; answers with those that were.
-- takes: ids uuids
-- gives: id uuid
update tidemill.workers set state = 'draining' where id = any(:ids::uuid[]) and state = 'active' returning id

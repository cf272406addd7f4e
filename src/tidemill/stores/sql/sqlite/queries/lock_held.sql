-- lock_held: the claim times of held jobs. A write transaction excludes other writers, so nothing is locked.
-- takes: ids uuids
-- gives: id uuid, token int8, worker uuid, claimed_at timestamptz
select id, token, worker, claimed_at from tidemill_running where id in (select unhex(value) from json_each(:ids)) order by id

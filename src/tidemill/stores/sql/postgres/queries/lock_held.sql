-- lock_held: the claim times of held jobs. Locks them in the order of their ids.
-- takes: ids uuids
-- gives: id uuid, token int8, worker uuid, claimed_at timestamptz
select id, token, worker, claimed_at from tidemill.running where id = any(:ids::uuid[]) order by id for update

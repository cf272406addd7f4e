-- close_groups: ends live groups whose join is full, in the states that the caller has decided.
-- takes: now timestamptz
-- items: id uuid, state text
update tidemill_flows set ended_at = :now, state = :state where id = :id and ended_at is null

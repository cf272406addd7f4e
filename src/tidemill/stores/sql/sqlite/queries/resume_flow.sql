-- resume_flow: clears the cancel reason and the stop of a group.
-- takes: id uuid
update tidemill_flows set cancel_reason = null, stops = 0 where id = :id

-- resume_flow: clears the cancel reason and the stop of a group.
-- takes: id uuid
update tidemill.flows set cancel_reason = null, stops = false where id = :id::uuid

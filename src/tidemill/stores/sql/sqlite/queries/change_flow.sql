-- change_flow: changes a live group that the caller has locked.
-- takes: id uuid, cancel_reason text, stops bool, held int4
update tidemill_flows set cancel_reason = coalesce(cancel_reason, :cancel_reason), stops = max(stops, :stops), held = :held
where id = :id

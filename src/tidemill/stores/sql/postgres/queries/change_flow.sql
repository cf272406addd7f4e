-- change_flow: changes a live group that the caller has locked.
-- takes: id uuid, cancel_reason text, stops bool, held int4
update tidemill.flows set cancel_reason = coalesce(cancel_reason, :cancel_reason::text), stops = stops or :stops::boolean, held = :held::int
where id = :id::uuid

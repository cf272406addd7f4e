-- request_cancel: requests cancellation of held jobs; the first reason is kept. Returns the ids that are held.
-- takes: tenant text, ids uuids, reason text
-- gives: id uuid
update tidemill.running set cancel_reason = coalesce(cancel_reason, :reason)
where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
returning id

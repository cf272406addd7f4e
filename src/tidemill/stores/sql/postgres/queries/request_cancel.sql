-- request_cancel: asks for held jobs to be stopped; the first reason stays. Answers with the ids that are held.
-- takes: tenant text, ids uuids, reason text
-- gives: id uuid
update tidemill.running set cancel_reason = coalesce(cancel_reason, :reason)
where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
returning id

-- release: releases a lease that the holder still has.
-- takes: name text, holder uuid, term int8
-- gives: name text
update tidemill.leases set holder = null, expires_at = null
where name = :name and holder = :holder and term = :term
returning name

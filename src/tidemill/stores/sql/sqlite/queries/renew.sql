-- renew: renews a lease that the holder still has and that has not expired. No row: stop.
-- takes: now timestamptz, name text, holder uuid, term int8, ttl interval, metadata text
-- gives: name text
update tidemill_leases
set beat_at = :now, expires_at = :now + :ttl, metadata = coalesce(:metadata, metadata)
where name = :name and holder = :holder and term = :term and expires_at > :now
returning name

-- lock_audit: lets one transaction at a time append to the audit. Readers are not held up.
-- An advisory lock, for one of the table would need more rights than to read it and to add to it.
select where pg_advisory_xact_lock(1953654884, 'tidemill.audit'::regclass::oid::int4) is not null

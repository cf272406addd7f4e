-- lock_audit: serialises appends to the audit log. Readers are not blocked.
-- An advisory lock, because a lock of the table would require more privileges than reading and inserting.
select where pg_advisory_xact_lock(1953654884, 'tidemill.audit'::regclass::oid::int4) is not null

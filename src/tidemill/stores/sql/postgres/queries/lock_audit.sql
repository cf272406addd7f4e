-- lock_audit: lets one transaction at a time append to the audit. Readers are not held up.
lock table tidemill.audit in share row exclusive mode

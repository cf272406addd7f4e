-- revoke_keys: revokes keys as of now; returns those that were not revoked before.
-- takes: now timestamptz, ids texts
-- gives: id text
update tidemill.keys set revoked_at = coalesce(:now::timestamptz, now()) where id = any(:ids::text[]) and revoked_at is null returning id

-- revoke_keys: revokes keys as of now; returns those that were not revoked before.
-- takes: now timestamptz, ids texts
-- gives: id text
update tidemill_keys set revoked_at = :now where id in (select value from json_each(:ids)) and revoked_at is null returning id

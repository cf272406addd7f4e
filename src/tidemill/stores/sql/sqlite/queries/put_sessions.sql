-- put_sessions: inserts a session; returns its id, or nothing if the id or the single-use code exists.
-- takes: now timestamptz, id text, who text, key_id text, grant_json text, issuer text, subject text, provider_session text
-- takes: single_use text, expires_at timestamptz
-- gives: id text
insert into tidemill_sessions(id, who, key_id, grant_json, issuer, subject, provider_session, single_use, created_at, expires_at)
values (:id, :who, :key_id, :grant_json, :issuer, :subject, :provider_session, :single_use, :now, :expires_at)
on conflict do nothing
returning id

-- expand: sign-in sessions, which the server can end.
-- serves: 6

-- The id is the SHA-256 of the cookie. An ended session stays until it expires, so that its single-use code stays used.
create table if not exists tidemill.sessions(
  id text primary key,
  who text not null,
  key_id text,
  grant_json text,
  issuer text,
  subject text,
  provider_session text,
  single_use text unique,
  created_at timestamptz not null,
  expires_at timestamptz not null,
  ended_at timestamptz);
create index if not exists sessions_expiry on tidemill.sessions(expires_at);

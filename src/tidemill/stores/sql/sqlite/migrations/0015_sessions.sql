-- expand: sign-in sessions, which the server can end.
-- serves: 6

-- The id is the SHA-256 of the cookie. An ended session stays until it expires, so that its single-use code stays used.
create table if not exists tidemill_sessions(
  id text not null primary key,
  who text not null,
  key_id text,
  grant_json text,
  issuer text,
  subject text,
  provider_session text,
  single_use text unique,
  created_at integer not null,
  expires_at integer not null,
  ended_at integer) strict;
create index if not exists tidemill_sessions_expiry on tidemill_sessions(expires_at);

-- sessions: all sessions, or those with these ids, by creation and id.
-- takes: ids texts
-- gives: id text, who text, expires_at timestamptz, key_id text, grant_json text, issuer text, subject text
-- gives: provider_session text, single_use text, created_at timestamptz, ended_at timestamptz
select id, who, expires_at, key_id, grant_json, issuer, subject, provider_session, single_use, created_at, ended_at
from tidemill_sessions
where true
  and id in (select value from json_each(:ids)) -- when ids
order by created_at, id

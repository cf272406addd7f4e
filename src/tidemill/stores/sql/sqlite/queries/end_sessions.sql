-- end_sessions: ends sessions as of now; returns those that had not ended before.
-- takes: now timestamptz, ids texts
-- gives: id text
update tidemill_sessions set ended_at = :now where id in (select value from json_each(:ids)) and ended_at is null returning id

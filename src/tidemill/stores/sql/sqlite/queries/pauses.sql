-- pauses: all pauses by kind and name.
-- gives: kind text, name text, reason text, paused_by text, paused_at timestamptz
select kind, name, reason, paused_by, paused_at from tidemill_pauses order by kind, name

-- resume: deletes pauses; returns those that existed.
-- items: kind text, name text
-- gives: kind text, name text, reason text, paused_by text, paused_at timestamptz
delete from tidemill.pauses p using unnest(:kind::text[], :name::text[]) as x(kind, name)
where p.kind = x.kind and p.name = x.name
returning p.kind, p.name, p.reason, p.paused_by, p.paused_at

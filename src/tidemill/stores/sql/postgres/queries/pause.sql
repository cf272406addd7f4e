-- pause: adds pauses; existing ones are unchanged. Returns the new ones.
-- takes: now timestamptz
-- items: kind text, name text, reason text, paused_by text
-- gives: kind text, name text, reason text, paused_by text, paused_at timestamptz
insert into tidemill.pauses(kind, name, reason, paused_by, paused_at)
select x.kind, x.name, x.reason, x.paused_by, coalesce(:now::timestamptz, now())
from unnest(:kind::text[], :name::text[], :reason::text[], :paused_by::text[]) as x(kind, name, reason, paused_by)
order by x.kind, x.name
on conflict (kind, name) do nothing
returning kind, name, reason, paused_by, paused_at

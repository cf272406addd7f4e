-- see_alerts: updates open alerts.
-- takes: now timestamptz
-- items: id uuid, severity text, text text, value float8
-- gives: id uuid
update tidemill.alerts a
set severity = x.severity, text = x.text, value = x.value, seen_at = coalesce(:now::timestamptz, now())
from unnest(:id::uuid[], :severity::text[], :text::text[], :value::float8[]) as x(id, severity, text, value)
where a.id = x.id and a.recovered_at is null
returning a.id

-- open_alerts: inserts alerts, each unless one with its code and subject is open.
-- takes: now timestamptz
-- items: id uuid, code text, subject text, severity text, text text, value float8, threshold float8, since_at timestamptz
-- gives: id uuid
insert into tidemill.alerts(id, code, subject, severity, text, value, threshold, since_at, opened_at, seen_at)
select x.id, x.code, x.subject, x.severity, x.text, x.value, x.threshold, x.since_at, coalesce(:now::timestamptz, now()),
  coalesce(:now::timestamptz, now())
from unnest(:id::uuid[], :code::text[], :subject::text[], :severity::text[], :text::text[], :value::float8[], :threshold::float8[],
  :since_at::timestamptz[]) as x(id, code, subject, severity, text, value, threshold, since_at)
on conflict do nothing
returning id

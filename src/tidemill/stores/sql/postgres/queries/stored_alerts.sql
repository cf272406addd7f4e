-- stored_alerts: alerts, the newest first; open ones, recovered ones, or both.
-- Index: alerts_opened, or alerts_open with the flag.
-- takes: before timestamptz, limit int4
-- gives: id uuid, code text, subject text, severity text, text text, value float8, threshold float8, since_at timestamptz
-- gives: opened_at timestamptz, seen_at timestamptz, acknowledged_at timestamptz, acknowledged_by text, recovered_at timestamptz
select id, code, subject, severity, text, value, threshold, since_at, opened_at, seen_at, acknowledged_at,
  acknowledged_by, recovered_at
from tidemill.alerts
where true
  and recovered_at is null -- when is_open
  and recovered_at is not null -- when is_over
  and opened_at < :before::timestamptz -- when before
order by opened_at desc, id desc
limit :limit

-- orders: all pauses, settings and rules in one query; for a rule, ``value`` is its breaker.
-- gives: what text, name text, kind text, value text, note text, max int8, per interval, burst int8, pinned bool
-- gives: at timestamptz, by text
select 'pause' as what, name, kind, null as value, reason as note, null as max, null as per, null as burst,
  null as pinned, paused_at as at, paused_by as by
from tidemill_pauses
union all
select 'setting', key, null, value, description, null, null, null, null, updated_at, updated_by from tidemill_settings
union all
select 'rule', name, kind, breaker, null, max, per, burst, pinned, changed_at, changed_by from tidemill_limits

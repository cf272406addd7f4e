-- orders: all pauses, settings and rules in one query; for a rule, ``value`` is its breaker.
-- gives: what text, name text, kind text, value text, note text, max int8, per interval, burst int8, pinned bool
-- gives: at timestamptz, by text
select 'pause' as what, name, kind, null::text as value, reason as note, null::int8 as max, null::interval as per, null::int8 as burst,
  null::bool as pinned, paused_at as at, paused_by as by
from tidemill.pauses
union all
select 'setting', key, null, value, description, null, null, null, null, updated_at, updated_by from tidemill.settings
union all
select 'rule', name, kind, breaker, null, max, per, burst, pinned, changed_at, changed_by from tidemill.limits

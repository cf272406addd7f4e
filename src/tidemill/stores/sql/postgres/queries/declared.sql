-- declared: the number of definitions and schedules, enabled and disabled. Both tables are small.
-- gives: definitions int8, disabled_definitions int8, schedules int8, disabled_schedules int8
select d.enabled as definitions, d.disabled as disabled_definitions, s.enabled as schedules, s.disabled as disabled_schedules
from (select count(*) filter (where enabled) as enabled, count(*) filter (where not enabled) as disabled
      from tidemill.definitions where deleted_at is null) d
cross join (select count(*) filter (where enabled) as enabled, count(*) filter (where not enabled) as disabled
            from tidemill.schedules) s

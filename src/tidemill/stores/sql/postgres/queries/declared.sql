-- declared: the number of definitions and schedules, enabled and disabled. Both tables are small.
-- takes: tenant text
-- gives: definitions int8, disabled_definitions int8, schedules int8, disabled_schedules int8
select d.enabled as definitions, d.disabled as disabled_definitions, s.enabled as schedules, s.disabled as disabled_schedules
from (select count(*) filter (where enabled) as enabled, count(*) filter (where not enabled) as disabled
      from tidemill.definitions
      where deleted_at is null
        and tenant = :tenant -- when tenant
        ) d
cross join (select count(*) filter (where enabled) as enabled, count(*) filter (where not enabled) as disabled
            from tidemill.schedules
            where true
              and tenant = :tenant -- when tenant
              ) s

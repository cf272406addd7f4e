-- put_sources: writes what schedules react to.
-- items: schedule_id uuid, tenant text, kind text, name text
insert into tidemill_trigger_sources(schedule_id, tenant, kind, name) values (:schedule_id, :tenant, :kind, :name)

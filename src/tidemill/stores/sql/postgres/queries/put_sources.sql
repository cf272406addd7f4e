-- put_sources: writes what schedules react to.
-- items: schedule_id uuid, tenant text, kind text, name text
insert into tidemill.trigger_sources(schedule_id, tenant, kind, name)
select x.schedule_id, x.tenant, x.kind, x.name
from unnest(:schedule_id::uuid[], :tenant::text[], :kind::text[], :name::text[]) as x(schedule_id, tenant, kind, name)

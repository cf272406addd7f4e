-- note_events: writes new events for the enabled schedules that fire on them. Index: trigger_sources_name.
-- takes: ids uuids
-- gives: schedule_id uuid
insert into tidemill.occurrences(schedule_id, id, source, occurred_at, match, payload)
select s.schedule_id, e.id, e.name, e.created_at, e.match, e.payload
from tidemill.events e
join tidemill.trigger_sources s on s.kind = 'event' and s.tenant = e.tenant and s.name = e.name
join tidemill.schedules c on c.id = s.schedule_id and c.enabled
left join tidemill.definitions g on g.id = c.definition_id
where e.id = any(:ids::uuid[]) and coalesce(g.enabled and g.deleted_at is null, true)
on conflict (schedule_id, id) do nothing
returning schedule_id

-- note_ends: writes the ends of jobs for the enabled schedules that run after their definitions.
-- Indexes: the primary keys of details, definitions and schedules, trigger_sources_name.
-- takes: now timestamptz
-- items: id uuid, outcome text
-- gives: schedule_id uuid
insert into tidemill.occurrences(schedule_id, id, source, occurred_at, outcome)
select s.schedule_id, x.id, f.key, coalesce(:now::timestamptz, now()), x.outcome
from unnest(:id::uuid[], :outcome::text[]) as x(id, outcome)
join tidemill.details d on d.id = x.id
join tidemill.definitions f on f.id = d.definition_id
join tidemill.trigger_sources s on s.kind = 'definition' and s.tenant = f.tenant and s.name = f.key
join tidemill.schedules c on c.id = s.schedule_id and c.enabled
left join tidemill.definitions g on g.id = c.definition_id
where coalesce(g.enabled and g.deleted_at is null, true)
on conflict (schedule_id, id) do update set occurred_at = excluded.occurred_at, outcome = excluded.outcome
returning schedule_id

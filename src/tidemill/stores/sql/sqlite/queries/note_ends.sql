-- note_ends: writes the ends of jobs for the enabled schedules that run after their definitions.
-- Indexes: the primary keys of details, definitions and schedules, tidemill_trigger_sources_name.
-- takes: now timestamptz
-- items: id uuid, outcome text
-- gives: schedule_id uuid
delete from temp.tidemill_fit
;
insert or ignore into temp.tidemill_fit(id)
select s.schedule_id
from tidemill_details d
join tidemill_definitions f on f.id = d.definition_id
join tidemill_trigger_sources s on s.kind = 'definition' and s.tenant = f.tenant and s.name = f.key
where d.id = :id
;
insert into tidemill_occurrences(schedule_id, id, source, occurred_at, outcome)
select s.schedule_id, :id, f.key, :now, :outcome
from tidemill_details d
join tidemill_definitions f on f.id = d.definition_id
join tidemill_trigger_sources s on s.kind = 'definition' and s.tenant = f.tenant and s.name = f.key
join tidemill_schedules c on c.id = s.schedule_id and c.enabled
left join tidemill_definitions g on g.id = c.definition_id
where d.id = :id and coalesce(g.enabled and g.deleted_at is null, 1)
on conflict (schedule_id, id) do update set occurred_at = excluded.occurred_at, outcome = excluded.outcome
;
select id as schedule_id from temp.tidemill_fit

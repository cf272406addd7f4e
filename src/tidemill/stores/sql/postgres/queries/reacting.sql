-- reacting: enabled schedules with occurrences, by id. Index: the primary key of occurrences.
-- takes: after uuid, limit int4
-- gives: id uuid
select s.id from tidemill.schedules s
where s.enabled
  and exists (select from tidemill.occurrences o where o.schedule_id = s.id)
  and s.id in (select schedule_id from tidemill.trigger_sources)
  and s.id > :after -- when after
order by s.id limit :limit

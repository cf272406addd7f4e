-- label: adds a limit to pending and scheduled jobs of a task. A pending job keeps its number.
-- takes: task text, name text, quoted text, limit int4
-- gives: id uuid
delete from temp.tidemill_fit
;
insert into temp.tidemill_fit(id)
select id from tidemill_ready
where task = :task and (limits is null or not exists (select 1 from json_each(limits) where value = :name)) limit :limit
;
insert into temp.tidemill_fit(id)
select id from tidemill_scheduled
where task = :task and (limits is null or not exists (select 1 from json_each(limits) where value = :name))
limit max(:limit - (select count(*) from temp.tidemill_fit), 0)
;
update tidemill_ready set limits = coalesce(substr(limits, 1, length(limits) - 1) || ',', '[') || :quoted || ']'
where id in (select id from temp.tidemill_fit)
;
update tidemill_scheduled set limits = coalesce(substr(limits, 1, length(limits) - 1) || ',', '[') || :quoted || ']'
where id in (select id from temp.tidemill_fit)
;
select id from temp.tidemill_fit

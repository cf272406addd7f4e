-- change: gives pending and scheduled jobs another queue or priority, each only in an expected state; answers with the ids of these.
-- A pending job keeps its number. Gathers the ids of the batch in a temporary table. Indexes: the primary keys.
-- items: id uuid, tenant text, expect text, queue text, priority int2
-- gives: id uuid
delete from temp.tidemill_fit
;
insert into temp.tidemill_fit(id)
select id from tidemill_ready where id = :id and :tenant in ('*', tenant) and instr(',' || :expect || ',', ',pending,') > 0
;
insert into temp.tidemill_fit(id)
select id from tidemill_scheduled where id = :id and :tenant in ('*', tenant) and instr(',' || :expect || ',', ',scheduled,') > 0
;
update tidemill_ready set queue = coalesce(:queue, queue), priority = coalesce(:priority, priority)
where id = :id and id in (select id from temp.tidemill_fit)
;
update tidemill_scheduled set queue = coalesce(:queue, queue), priority = coalesce(:priority, priority)
where id = :id and id in (select id from temp.tidemill_fit)
;
select id from temp.tidemill_fit

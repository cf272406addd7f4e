-- emit: stores events, each once per id; returns the ids of those that are new.
-- takes: now timestamptz
-- items: id uuid, tenant text, name text, match text, payload text, source text
-- gives: id uuid
delete from temp.tidemill_fit
;
insert or ignore into temp.tidemill_fit(id) select :id where not exists (select 1 from tidemill_events where id = :id)
;
insert into tidemill_events(id, tenant, name, match, payload, source, created_at)
values (:id, :tenant, :name, :match, :payload, :source, :now)
on conflict (id) do nothing
;
select id from temp.tidemill_fit

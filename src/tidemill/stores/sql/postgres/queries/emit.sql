-- emit: stores events, each once per id; returns the ids of those that are new.
-- takes: now timestamptz
-- items: id uuid, tenant text, name text, match text, payload text, source text
-- gives: id uuid
insert into tidemill.events(id, tenant, name, match, payload, source, created_at)
select x.id, x.tenant, x.name, x.match, x.payload, x.source, coalesce(:now::timestamptz, now())
from unnest(:id::uuid[], :tenant::text[], :name::text[], :match::text[], :payload::text[], :source::text[])
  as x(id, tenant, name, match, payload, source)
on conflict (id) do nothing
returning id

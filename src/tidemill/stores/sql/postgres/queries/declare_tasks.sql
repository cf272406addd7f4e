-- declare_tasks: writes the records of tasks over those of earlier deployments.
-- Locks the records, in the order of their names. Index: the primary key.
-- takes: now timestamptz
-- items: name text, description text, owner text, schema text, settings text, deployed_at timestamptz
insert into tidemill.tasks as t (name, description, owner, schema, settings, deployed_at, seen_at)
select x.name, x.description, x.owner, x.schema, x.settings, x.deployed_at, coalesce(:now::timestamptz, now())
from unnest(:name::text[], :description::text[], :owner::text[], :schema::text[], :settings::text[],
            :deployed_at::timestamptz[]) as x(name, description, owner, schema, settings, deployed_at)
order by x.name collate "C"
on conflict (name) do update set
  description = excluded.description, owner = excluded.owner, schema = excluded.schema, settings = excluded.settings,
  deployed_at = excluded.deployed_at, seen_at = excluded.seen_at
  where t.deployed_at is null or t.deployed_at <= excluded.deployed_at

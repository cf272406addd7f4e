-- declare_tasks: writes the records of tasks over those of earlier deployments.
-- Index: the primary key.
-- takes: now timestamptz
-- items: name text, description text, owner text, schema text, settings text, deployed_at timestamptz
insert into tidemill_tasks as t (name, description, owner, schema, settings, deployed_at, seen_at)
values (:name, :description, :owner, :schema, :settings, :deployed_at, :now)
on conflict (name) do update set
  description = excluded.description, owner = excluded.owner, schema = excluded.schema, settings = excluded.settings,
  deployed_at = excluded.deployed_at, seen_at = excluded.seen_at
  where t.deployed_at is null or t.deployed_at <= excluded.deployed_at

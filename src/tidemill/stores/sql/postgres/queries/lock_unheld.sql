-- lock_unheld: jobs that no worker holds, with their states and whether their end is counted. Locks them, each table in the order of ids,
-- so that no job becomes tied between this and their move.
-- takes: ids uuids
-- gives: id uuid, state text, tied bool
with a as materialized (select id, tied from tidemill.ready where id = any(:ids::uuid[]) order by id for update),
b as materialized (select id, tied from tidemill.scheduled where id = any(:ids::uuid[]) order by id for update),
c as materialized (select id, state, tied from tidemill.parked where id = any(:ids::uuid[]) order by id for update),
d as materialized (select id, state, tied from tidemill.history where id = any(:ids::uuid[]) order by id for update)
select id, 'pending'::text as state, tied from a union all select id, 'scheduled', tied from b
union all select id, state, tied from c union all select id, state, tied from d

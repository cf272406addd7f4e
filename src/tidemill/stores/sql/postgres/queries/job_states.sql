-- job_states: the states of jobs, and whether their end is counted.
-- takes: ids uuids
-- gives: id uuid, state text, tied bool
select id, 'pending'::text as state, tied from tidemill.ready where id = any(:ids::uuid[])
union all select id, 'scheduled', tied from tidemill.scheduled where id = any(:ids::uuid[])
union all select id, state, tied from tidemill.parked where id = any(:ids::uuid[])
union all select id, state, tied from tidemill.running where id = any(:ids::uuid[])
union all select id, state, tied from tidemill.history where id = any(:ids::uuid[])

-- lock_unheld: jobs that no worker holds, with their states and whether their end is counted. Locks them, each table in the order of ids,
-- so that no job becomes tied between this and their move.
-- takes: ids uuids
-- gives: id uuid, state text, tied bool
select id, 'pending' as state, tied from tidemill_ready where id in (select unhex(value) from json_each(:ids))
union all select id, 'scheduled', tied from tidemill_scheduled where id in (select unhex(value) from json_each(:ids))
union all select id, state, tied from tidemill_parked where id in (select unhex(value) from json_each(:ids))
union all select id, state, tied from tidemill_history where id in (select unhex(value) from json_each(:ids))

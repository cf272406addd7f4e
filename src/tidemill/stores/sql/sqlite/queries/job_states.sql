-- job_states: the states of jobs, and whether their end is counted.
-- takes: ids uuids
-- gives: id uuid, state text, tied bool
select id, 'pending' as state, tied from tidemill_ready where id in (select unhex(value) from json_each(:ids))
union all select id, 'scheduled', tied from tidemill_scheduled where id in (select unhex(value) from json_each(:ids))
union all select id, state, tied from tidemill_parked where id in (select unhex(value) from json_each(:ids))
union all select id, state, tied from tidemill_running where id in (select unhex(value) from json_each(:ids))
union all select id, state, tied from tidemill_history where id in (select unhex(value) from json_each(:ids))

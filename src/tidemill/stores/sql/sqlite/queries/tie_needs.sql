-- tie_needs: marks jobs as tied and locks their rows; returns those that it found, with the state of those that have ended.
-- PostgreSQL: a job that moves to another table at this moment is not found; the caller looks again.
-- takes: ids uuids
-- gives: id uuid, tenant text, ended text
update tidemill_ready set tied = 1 where id in (select unhex(value) from json_each(:ids))
;
update tidemill_scheduled set tied = 1 where id in (select unhex(value) from json_each(:ids))
;
update tidemill_parked set tied = 1 where id in (select unhex(value) from json_each(:ids))
;
update tidemill_running set tied = 1 where id in (select unhex(value) from json_each(:ids))
;
update tidemill_history set tied = 1 where id in (select unhex(value) from json_each(:ids))
;
select id, tenant, null as ended from tidemill_ready where id in (select unhex(value) from json_each(:ids))
union all select id, tenant, null from tidemill_scheduled where id in (select unhex(value) from json_each(:ids))
union all select id, tenant, null from tidemill_parked where id in (select unhex(value) from json_each(:ids))
union all select id, tenant, null from tidemill_running where id in (select unhex(value) from json_each(:ids))
union all select id, tenant, state from tidemill_history where id in (select unhex(value) from json_each(:ids))

-- tie_needs: marks jobs as tied and locks their rows; returns those that it found, with the state of those that have ended.
-- PostgreSQL: a job that moves to another table at this moment is not found; the caller looks again.
-- takes: ids uuids
-- gives: id uuid, tenant text, ended text
with item as materialized (select x.id from unnest(:ids::uuid[]) as x(id) order by x.id),
a as (update tidemill.ready j set tied = true from item x where j.id = x.id returning j.id, j.tenant, null::text as ended),
b as (update tidemill.scheduled j set tied = true from item x where j.id = x.id returning j.id, j.tenant, null::text as ended),
c as (update tidemill.parked j set tied = true from item x where j.id = x.id returning j.id, j.tenant, null::text as ended),
d as (update tidemill.running j set tied = true from item x where j.id = x.id returning j.id, j.tenant, null::text as ended),
e as (update tidemill.history j set tied = true from item x where j.id = x.id returning j.id, j.tenant, j.state as ended)
select * from a union all select * from b union all select * from c union all select * from d union all select * from e

-- change: gives pending and scheduled jobs another queue or priority, each only in an expected state; answers with the ids of these.
-- A pending job keeps its number. Locks jobs in the order of their ids. Indexes: the primary keys.
-- items: id uuid, tenant text, expect text, queue text, priority int2
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :tenant::text[], :expect::text[], :queue::text[], :priority::smallint[])
    as x(id, tenant, expect, queue, priority)
  order by id),
pending as (
  update tidemill.ready j set queue = coalesce(x.queue, j.queue), priority = coalesce(x.priority, j.priority)
  from item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and 'pending' = any(string_to_array(x.expect, ','))
  returning j.id),
later as (
  update tidemill.scheduled j set queue = coalesce(x.queue, j.queue), priority = coalesce(x.priority, j.priority)
  from item x
  where j.id = x.id and x.tenant in ('*', j.tenant) and 'scheduled' = any(string_to_array(x.expect, ','))
  returning j.id)
select id from pending union all select id from later

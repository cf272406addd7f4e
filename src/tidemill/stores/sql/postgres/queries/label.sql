-- label: adds a limit to pending and scheduled jobs of a task. A pending job keeps its number.
-- takes: task text, name text, quoted text, limit int4
-- gives: id uuid
with pending as materialized (
  select ctid as place from tidemill.ready
  where task = :task::text and (limits is null or not limits::jsonb ? :name::text) limit :limit for update skip locked),
scheduled as materialized (
  select ctid as place from tidemill.scheduled
  where task = :task::text and (limits is null or not limits::jsonb ? :name::text)
  limit greatest(:limit - (select count(*) from pending), 0) for update skip locked),
labelled as (
  update tidemill.ready set limits = coalesce(left(limits, -1) || ',', '[') || :quoted::text || ']'
  where ctid = any(array(select place from pending)) returning id),
later as (
  update tidemill.scheduled set limits = coalesce(left(limits, -1) || ',', '[') || :quoted::text || ']'
  where ctid = any(array(select place from scheduled)) returning id)
select id from labelled union all select id from later

-- note_starts: records starts of jobs that count against these names; starts before their windows are deleted.
-- takes: now timestamptz
-- items: name text, jobs int4, window interval
with item as materialized (
  select * from unnest(:name::text[], :jobs::int[], :window::interval[]) as x(name, jobs, window_)),
old as (
  delete from tidemill.starts s using item x
  where s.name = x.name and s.begun_at <= coalesce(:now::timestamptz, now()) - x.window_)
insert into tidemill.starts(name, begun_at, jobs) select name, coalesce(:now::timestamptz, now()), jobs from item

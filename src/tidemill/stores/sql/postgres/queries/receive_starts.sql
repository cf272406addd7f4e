-- receive_starts: records starts that another store has counted, unless a start of the same name and instant is stored.
-- The names are already locked. Index: starts_name.
-- items: name text, begun_at timestamptz, jobs int4
insert into tidemill.starts(name, begun_at, jobs)
select x.name, x.begun_at, x.jobs from unnest(:name::text[], :begun_at::timestamptz[], :jobs::int[]) as x(name, begun_at, jobs)
where not exists (select from tidemill.starts s where s.name = x.name and s.begun_at = x.begun_at)

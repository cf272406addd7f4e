-- take_back_starts: removes recorded starts by adding negative counterparts.
-- items: name text, begun_at timestamptz, jobs int4
insert into tidemill.starts(name, begun_at, jobs)
select x.name, x.begun_at, -x.jobs from unnest(:name::text[], :begun_at::timestamptz[], :jobs::int[]) as x(name, begun_at, jobs)

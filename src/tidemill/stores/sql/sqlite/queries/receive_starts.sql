-- receive_starts: records starts that another store has counted, unless a start of the same name and instant is stored.
-- A write transaction excludes other writers. Index: starts_name.
-- items: name text, begun_at timestamptz, jobs int4
insert into tidemill_starts(name, begun_at, jobs)
select :name, :begun_at, :jobs
where not exists (select 1 from tidemill_starts s where s.name = :name and s.begun_at = :begun_at)

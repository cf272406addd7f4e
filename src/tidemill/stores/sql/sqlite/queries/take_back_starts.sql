-- take_back_starts: removes recorded starts by adding negative counterparts.
-- items: name text, begun_at timestamptz, jobs int4
insert into tidemill_starts(name, begun_at, jobs) values (:name, :begun_at, -:jobs)

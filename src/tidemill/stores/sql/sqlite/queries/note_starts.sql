-- note_starts: so many jobs begin now that count against these names for a while; what began before their windows is forgotten.
-- takes: now timestamptz
-- items: name text, jobs int4, window interval
delete from tidemill_starts where name = :name and begun_at <= :now - :window
;
insert into tidemill_starts(name, begun_at, jobs) values (:name, :now, :jobs)

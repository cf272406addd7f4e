-- note_starts: records starts of jobs that count against these names; starts before their windows are deleted.
-- takes: now timestamptz
-- items: name text, jobs int4, window interval
delete from tidemill_starts where name = :name and begun_at <= :now - :window
;
insert into tidemill_starts(name, begun_at, jobs) values (:name, :now, :jobs)

-- archive_entries: the entries of jobs in a place, by id; the newest file first. Index: the primary key.
-- takes: place text, ids uuids
-- gives: id uuid, file uuid, frame int4
select e.id, e.file, e.frame
from tidemill_archive_entries e cross join tidemill_archive_files f on f.id = e.file
where e.id in (select unhex(value) from json_each(:ids)) and f.place = :place
order by e.id, e.file desc

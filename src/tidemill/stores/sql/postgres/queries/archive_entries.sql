-- archive_entries: the entries of jobs in a place, by id; the newest file first. Index: archive_entries_pkey.
-- takes: place text, ids uuids
-- gives: id uuid, file uuid, frame int4
select e.id, e.file, e.frame
from tidemill.archive_entries e join tidemill.archive_files f on f.id = e.file
where e.id = any(:ids::uuid[]) and f.place = :place
order by e.id, e.file desc

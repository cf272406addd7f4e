-- remove_archive_files: removes files with their entries. Index: the primary key, by the range of ids of each file.
-- takes: files uuids
delete from tidemill_archive_entries where (id, file) in (
  select e.id, e.file from tidemill_archive_files f
  cross join tidemill_archive_entries e on e.id between f.first_id and f.last_id and e.file = f.id
  where f.id in (select unhex(value) from json_each(:files)))
;
delete from tidemill_archive_files where id in (select unhex(value) from json_each(:files))

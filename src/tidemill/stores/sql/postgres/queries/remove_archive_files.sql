-- remove_archive_files: removes files with their entries. Index: archive_entries_pkey, by the range of ids of each file.
-- takes: files uuids
with gone as (
  delete from tidemill.archive_files where id = any(:files::uuid[]) returning id, first_id, last_id)
delete from tidemill.archive_entries e using gone g where e.file = g.id and e.id between g.first_id and g.last_id

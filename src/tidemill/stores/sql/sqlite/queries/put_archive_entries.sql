-- put_archive_entries: adds the entries of a file; known ones stay as they are.
-- items: id uuid, file uuid, frame int4
insert into tidemill_archive_entries(id, file, frame) values (:id, :file, :frame)
on conflict (id, file) do nothing

-- put_archive_entries: adds the entries of a file; known ones stay as they are.
-- items: id uuid, file uuid, frame int4
insert into tidemill.archive_entries(id, file, frame)
select x.id, x.file, x.frame from unnest(:id::uuid[], :file::uuid[], :frame::int[]) as x(id, file, frame)
order by x.id
on conflict (id, file) do nothing

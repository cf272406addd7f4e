-- put_archive_file: adds a file to the catalogue; a known one stays as it is.
-- takes: id uuid, place text, path text, tier text, format text, rows int8, bytes int8, checksum text, first_id uuid, last_id uuid
-- takes: first_ended_at timestamptz, last_ended_at timestamptz, tenants text, tasks text, states text, frames text, archived_at timestamptz
insert into tidemill_archive_files(id, place, path, tier, format, rows, bytes, sha256, first_id, last_id, first_ended_at, last_ended_at, tenants, tasks, states, frames, archived_at)
values (:id, :place, :path, :tier, :format, :rows, :bytes, :checksum, :first_id, :last_id, :first_ended_at, :last_ended_at, :tenants, :tasks, :states, :frames, :archived_at)
on conflict (id) do nothing

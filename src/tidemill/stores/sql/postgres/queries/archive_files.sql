-- archive_files: the files of a place, by the end of their first job. Index: archive_files_ended.
-- takes: place text, files uuids, after uuid, tier text, ended_by timestamptz
-- gives: id uuid, place text, path text, tier text, format text, rows int8, bytes int8, sha256 text, first_id uuid, last_id uuid
-- gives: first_ended_at timestamptz, last_ended_at timestamptz, tenants text, tasks text, states text, frames text, archived_at timestamptz
select id, place, path, tier, format, rows, bytes, sha256, first_id, last_id, first_ended_at, last_ended_at, tenants, tasks, states, frames, archived_at
from tidemill.archive_files
where place = :place
  and id = any(:files::uuid[]) -- when files
  and id > :after -- when after
  and tier = :tier -- when tier
  and first_ended_at <= :ended_by -- when ended_by
order by first_ended_at, id

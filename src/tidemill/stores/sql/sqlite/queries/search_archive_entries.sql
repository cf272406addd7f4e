-- search_archive_entries: one page of entries, in the order of their ids. Index: the primary key.
-- The tenant and the task are JSON strings, as they are written in the lists of a file.
-- takes: place text, tenant text, task text, tier text, below uuid, above uuid, limit int4
-- gives: id uuid, file uuid, frame int4
select e.id, e.file, e.frame
from tidemill_archive_entries e cross join tidemill_archive_files f on f.id = e.file
where f.place = :place
  and instr(f.tenants, :tenant) > 0 -- when tenant
  and instr(f.tasks, :task) > 0 -- when task
  and f.tier = :tier -- when tier
  and e.id < :below -- when below
  and e.id > :above -- when above
order by e.id desc, e.file desc -- when newest
order by e.id, e.file desc -- when oldest
limit :limit

-- sealed_checkpoints: the next checkpoints by job and name, with values that contain sealed ones. Index: primary key.
-- takes: after uuid, name text, limit int4
-- gives: id uuid, name text, part text, queue text, args text
select job_id as id, name, ''::text as part, ''::text as queue, case when value like '%$sealed%' or value like 'blob:%' then value end as args
from tidemill.checkpoints
where (job_id, name collate "C") > (:after, :name)
order by job_id, name collate "C"
limit :limit

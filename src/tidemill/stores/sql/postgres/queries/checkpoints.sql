-- checkpoints: one job's checkpoints by name. Index: checkpoints' primary key.
-- takes: id uuid, tenant text
-- gives: name text, value text
select c.name, c.value
from tidemill.checkpoints c
where c.job_id = :id
  and exists (select from tidemill.jobs j where j.id = :id and j.tenant = :tenant) -- when tenant
order by c.name collate "C"

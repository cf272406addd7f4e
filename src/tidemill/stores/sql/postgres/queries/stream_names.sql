-- stream_names: the streams of one job with their numbers of items. Index: streams' primary key.
-- takes: id uuid, tenant text
-- gives: name text, items int8
select s.name, count(*) as items
from tidemill.streams s
where s.job_id = :id
  and exists (select from tidemill.jobs j where j.id = :id and j.tenant = :tenant) -- when tenant
group by s.name
order by s.name

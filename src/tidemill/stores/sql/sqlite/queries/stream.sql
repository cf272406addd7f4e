-- stream: items of one stream of a job after a position, in order. Index: streams' primary key.
-- takes: id uuid, tenant text, name text, number int8, n int8, limit int4
-- gives: number int8, n int8, data text
select s.number, s.n, s.data
from tidemill_streams s
where s.job_id = :id and s.name = :name and (s.number, s.n) > (:number, :n)
  and exists (select 1 from tidemill_jobs j where j.id = :id and j.tenant = :tenant) -- when tenant
order by s.number, s.n
limit :limit

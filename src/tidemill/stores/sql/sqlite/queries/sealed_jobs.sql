-- sealed_jobs: the next jobs by id, with their texts that contain sealed values. Indexes: the jobs' ids.
-- takes: after uuid, limit int4
-- gives: id uuid, name text, part text, queue text, args text, result text
select id, cast('' as text) as name,
       case when state = 'pending' then 'ready' when state = 'scheduled' then 'scheduled'
            when state in ('claimed', 'running') then 'running' when state in ('waiting', 'review_needed') then 'parked'
            else 'history' end as part,
       queue,
       case when args like '%$sealed%' or args like 'blob:%' then args end as args,
       case when result like '%$sealed%' or result like 'blob:%' then result end as result
from (select id, state, queue, args, result from tidemill_jobs where id > :after order by id limit :limit) j
order by id

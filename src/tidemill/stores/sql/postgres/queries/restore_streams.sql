-- restore_streams: inserts the items of streams of restored jobs.
-- items: job_id uuid, number int8, name text, n int8, data text
insert into tidemill.streams(job_id, name, number, n, data)
select x.job_id, x.name, x.number, x.n, x.data
from unnest(:job_id::uuid[], :number::bigint[], :name::text[], :n::bigint[], :data::text[])
     as x(job_id, number, name, n, data)
on conflict do nothing

-- delete_blobs: deletes blobs by job and number.
-- items: job_id uuid, number int8
delete from tidemill.blobs b
using unnest(:job_id::uuid[], :number::bigint[]) as x(job_id, number)
where b.job_id = x.job_id and b.number = x.number

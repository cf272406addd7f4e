-- restore_streams: inserts the items of streams of restored jobs.
-- items: job_id uuid, number int8, name text, n int8, data text
insert into tidemill_streams(job_id, name, number, n, data)
values (:job_id, :name, :number, :n, :data)
on conflict do nothing

-- delete_blobs: deletes blobs by job and number.
-- items: job_id uuid, number int8
delete from tidemill_blobs where job_id = :job_id and number = :number

-- blob_parts: some parts of a blob, in order. Index: the primary key.
-- takes: job_id uuid, number int8, first int4, limit int4
-- gives: content text
select content from tidemill_blobs
where job_id = :job_id and number = :number and part >= :first and place is null order by part limit :limit

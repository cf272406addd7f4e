-- put_blob: writes parts of one blob, or the row that names its place outside the database.
-- takes: now timestamptz
-- items: job_id uuid, number int8, part int4, place text, content text
insert into tidemill_blobs(job_id, number, part, place, content, created_at)
values (:job_id, :number, :part, :place, :content, :now)

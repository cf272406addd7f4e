-- put_blob: writes parts of one blob, or the row that names its place outside the database.
-- takes: now timestamptz
-- items: job_id uuid, number int8, part int4, place text, content text
insert into tidemill.blobs(job_id, number, part, place, content, created_at)
select x.job_id, x.number, x.part, x.place, x.content, coalesce(:now::timestamptz, now())
from unnest(:job_id::uuid[], :number::bigint[], :part::int[], :place::text[], :content::text[]) as x(job_id, number, part, place, content)

-- streams_of: all items of the streams of some jobs, for the archive.
-- takes: ids uuids
-- gives: job_id uuid, name text, number int8, n int8, data text
select job_id, name, number, n, data
from tidemill.streams where job_id = any(:ids::uuid[]) order by job_id, name, number, n

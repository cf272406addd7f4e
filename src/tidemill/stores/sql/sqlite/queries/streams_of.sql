-- streams_of: all items of the streams of some jobs, for the archive.
-- takes: ids uuids
-- gives: job_id uuid, name text, number int8, n int8, data text
select job_id, name, number, n, data
from tidemill_streams where job_id in (select unhex(value) from json_each(:ids)) order by job_id, name, number, n

-- logs_of: all log lines of some jobs, for the archive.
-- takes: ids uuids
-- gives: position int8, job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text
-- gives: duration interval
select position, job_id, number, at, level, stage, message, details, duration
from tidemill_logs where job_id in (select unhex(value) from json_each(:ids)) order by job_id, position

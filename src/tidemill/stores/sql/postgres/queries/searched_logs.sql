-- searched_logs: the line at which a search ends: the last of a bounded number. Index: as for search_logs.
-- takes: levels texts, job_id uuid, since timestamptz, until timestamptz, before_at timestamptz, before_position int8
-- takes: skip int8
-- gives: at timestamptz, position int8
select l.at, l.position
from tidemill.logs l
where true
-- include: log_conditions
order by l.at desc, l.position desc
limit 1 offset :skip

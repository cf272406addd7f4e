-- logs: one job's log lines after a position in order, or before one backwards. Index: logs' primary key.
-- takes: id uuid, tenant text, after int8, before int8, levels texts, limit int4
-- gives: position int8, job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text
-- gives: duration interval
select l.position, l.job_id, l.number, l.at, l.level, l.stage, l.message, l.details, l.duration
from tidemill.logs l
where l.job_id = :id and l.position > :after
  and l.position < :before -- when before
  and l.level = any(:levels::text[]) -- when levels
  and exists (select from tidemill.jobs j where j.id = :id and j.tenant = :tenant) -- when tenant
order by l.position -- when oldest
order by l.position desc -- when newest
limit :limit

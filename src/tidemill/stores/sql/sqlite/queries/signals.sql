-- signals: unread signals of one job in order. Index: signals_unread.
-- takes: job_id uuid, tenant text, after int8, limit int4
-- gives: position int8, job_id uuid, tenant text, name text, payload text, key text, source text, created_at timestamptz
select s.position, s.job_id, s.tenant, s.name, s.payload, s.key, s.source, s.created_at
from tidemill_signals s
where s.job_id = :job_id and s.taken_at is null and s.position > :after
  and s.tenant = :tenant -- when tenant
order by s.position limit max(:limit, 0)

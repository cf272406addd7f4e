-- failure_counts: the failures of one group since an instant, by variant, task or tenant. Index: failures_fingerprint.
-- takes: fingerprint text, part text, since timestamptz, tenant text, limit int4
-- gives: name text, jobs int8, last_at timestamptz, cause text, message text, job_id uuid
select c.name, c.jobs, c.last_at, l.cause, l.message, l.job_id
from (
  select case :part when 'task' then task when 'tenant' then tenant else variant end as name,
         sum(jobs) as jobs, max(at) as last_at
  from tidemill_failures
  where fingerprint = :fingerprint and at >= :since
    and tenant = :tenant -- when tenant
  group by 1 order by 2 desc, 3 desc, 1 limit :limit) c
join tidemill_failures l on l.seq = (
  select n.seq from tidemill_failures n
  where n.fingerprint = :fingerprint and n.at = c.last_at
    and case :part when 'task' then n.task when 'tenant' then n.tenant else n.variant end = c.name
    and n.tenant = :tenant -- when tenant
  order by n.job_id desc limit 1)
order by c.jobs desc, c.last_at desc, c.name

-- failure_groups: the groups with the most failures since an instant, with their first failure and the latest one.
-- Indexes: failures_at, or failures_fingerprint for one group. Merged rows cover an hour, so the first failure is
-- in the first hour of the rows.
-- takes: since timestamptz, tenant text, fingerprint text, task text, limit int4
-- gives: fingerprint text, jobs int8, tasks int8, tenants int8, first_at timestamptz, last_at timestamptz, task text
-- gives: cause text, message text, job_id uuid
select r.fingerprint, r.jobs, r.tasks, r.tenants, (
    select min(n.first_at) from tidemill_failures n
    where n.fingerprint = r.fingerprint
      and n.tenant = :tenant -- when tenant
      and n.task = :task -- when task
      and n.at < 3600000000 + (
        select min(o.at) from tidemill_failures o
        where o.fingerprint = r.fingerprint
          and o.tenant = :tenant -- when tenant
          and o.task = :task -- when task
        )) as first_at,
  r.last_at, l.task, l.cause, l.message, l.job_id
from (
  select fingerprint, sum(jobs) as jobs, count(distinct task) as tasks, count(distinct tenant) as tenants, max(at) as last_at
  from tidemill_failures
  where at >= :since
    and fingerprint = :fingerprint -- when fingerprint
    and tenant = :tenant -- when tenant
    and task = :task -- when task
  group by fingerprint order by sum(jobs) desc, max(at) desc, fingerprint limit :limit) r
join tidemill_failures l on l.seq = (
  select n.seq from tidemill_failures n
  where n.fingerprint = r.fingerprint and n.at = r.last_at
    and n.tenant = :tenant -- when tenant
    and n.task = :task -- when task
  order by n.job_id desc limit 1)
order by r.jobs desc, r.last_at desc, r.fingerprint

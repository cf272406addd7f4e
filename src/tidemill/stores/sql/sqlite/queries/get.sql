-- get: jobs by id, in any state. Indexes: the five primary keys.
-- takes: tenant text, ids uuids
select
  -- include: job_row(args=args; result=result)
from tidemill_jobs
where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
order by id

-- get: jobs by id, in any state. Indexes: the five primary keys.
-- `is true` keeps the tenant out of the index choice: planned on empty tables, the query would walk all waiting jobs of a tenant.
-- takes: tenant text, ids uuids
select
  -- include: job_row(args=args; result=result)
from tidemill.jobs
where id = any(:ids::uuid[])
  and (tenant = :tenant) is true -- when tenant
order by id

-- depth: the number of pending jobs in a queue, of a tenant, or in all, counted up to the limit.
-- takes: queue text, tenant text, limit int4
-- gives: jobs int8
select count(*) as jobs from (
  select 1 from tidemill_ready
  where true
    and queue = :queue -- when queue
    and tenant = :tenant -- when tenant
  limit :limit)

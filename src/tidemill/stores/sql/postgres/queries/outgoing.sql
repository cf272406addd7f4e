-- outgoing: jobs of a tenant that can go to another store, pending ones first, in their order.
-- takes: tenant text, limit int4
-- gives: id uuid, until_claimed bool, window_ends_at timestamptz
with found as (
  (select j.id, j.unique_key, j.until_claimed, 0 as later, j.seq, j.run_at
   from tidemill.ready j where j.tenant = :tenant and
     -- include: carried_job
   order by j.seq limit :limit)
  union all
  (select j.id, j.unique_key, j.until_claimed, 1 as later, 0::bigint as seq, j.run_at
   from tidemill.scheduled j where j.tenant = :tenant and
     -- include: carried_job
   order by j.run_at, j.id limit :limit))
select f.id, f.until_claimed, u.window_ends_at
from found f left join tidemill.uniques u on u.tenant = :tenant and u.key = f.unique_key and u.job_id = f.id
order by f.later, f.seq, f.run_at, f.id limit :limit

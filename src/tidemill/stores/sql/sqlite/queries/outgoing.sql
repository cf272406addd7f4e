-- outgoing: jobs of a tenant that can go to another store, pending ones first, in their order.
-- takes: tenant text, limit int4
-- gives: id uuid, until_claimed bool, window_ends_at timestamptz
with found as (
  select * from (
    select j.id, j.unique_key, j.until_claimed, 0 as later, j.seq, j.run_at
    from tidemill_ready j where j.tenant = :tenant and
      -- include: carried_job
    order by j.seq limit max(:limit, 0))
  union all
  select * from (
    select j.id, j.unique_key, j.until_claimed, 1 as later, 0 as seq, j.run_at
    from tidemill_scheduled j where j.tenant = :tenant and
      -- include: carried_job
    order by j.run_at, j.id limit max(:limit, 0)))
select f.id, f.until_claimed, u.window_ends_at
from found f left join tidemill_uniques u on u.tenant = :tenant and u.key = f.unique_key and u.job_id = f.id
order by f.later, f.seq, f.run_at, f.id limit max(:limit, 0)

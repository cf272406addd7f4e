-- ended_series: how many ended in each step, and how many of them are meant. Index: history_finished alone, but for a tenant.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, look int8
-- gives: at timestamptz, seen int8, total int8
select date_bin(:step::interval, h.finished_at, :since) as at, count(*) as seen,
       count(*) filter (where true
         and h.tenant = :tenant -- when tenant
       ) as total
from (
  select finished_at
         , tenant -- when tenant
  from tidemill.history
  where finished_at >= :since and finished_at < :until
  order by finished_at desc limit :look) h
group by 1 order by 1

-- troubled_series: the number of failed and cancelled jobs in each step. Index: history_troubled_at only, except for a tenant.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, look int8
-- gives: at timestamptz, failed int8, cancelled int8
select date_bin(:step::interval, h.finished_at, :since) as at, count(*) filter (where s.state <> 'cancelled') as failed,
       count(*) filter (where s.state = 'cancelled') as cancelled
from unnest(array['failed', 'timed_out', 'dead_lettered', 'cancelled']) s(state) cross join lateral (
  select f.finished_at
         , f.tenant -- when tenant
  from tidemill.history f
  where f.state = s.state and f.state <> 'completed' and f.finished_at >= :since and f.finished_at < :until
  order by f.finished_at desc limit :look) h
where true
  and h.tenant = :tenant -- when tenant
group by 1 order by 1

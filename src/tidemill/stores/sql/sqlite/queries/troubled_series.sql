-- troubled_series: the number of failed and cancelled jobs in each step. Index: history_troubled_at only, except for a tenant.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, look int8
-- gives: at timestamptz, failed int8, cancelled int8
select (h.finished_at - :since) / :step * :step + :since as at, count(*) filter (where h.state <> 'cancelled') as failed,
       count(*) filter (where h.state = 'cancelled') as cancelled
from (
  select * from (
    select state, finished_at
           , tenant -- when tenant
    from tidemill_history indexed by tidemill_history_troubled_at
    where state = 'failed' and state <> 'completed' and finished_at >= :since and finished_at < :until
    order by finished_at desc limit max(:look, 0))
  union all
  select * from (
    select state, finished_at
           , tenant -- when tenant
    from tidemill_history indexed by tidemill_history_troubled_at
    where state = 'timed_out' and state <> 'completed' and finished_at >= :since and finished_at < :until
    order by finished_at desc limit max(:look, 0))
  union all
  select * from (
    select state, finished_at
           , tenant -- when tenant
    from tidemill_history indexed by tidemill_history_troubled_at
    where state = 'dead_lettered' and state <> 'completed' and finished_at >= :since and finished_at < :until
    order by finished_at desc limit max(:look, 0))
  union all
  select * from (
    select state, finished_at
           , tenant -- when tenant
    from tidemill_history indexed by tidemill_history_troubled_at
    where state = 'cancelled' and state <> 'completed' and finished_at >= :since and finished_at < :until
    order by finished_at desc limit max(:look, 0))) h
where true
  and h.tenant = :tenant -- when tenant
group by 1 order by 1

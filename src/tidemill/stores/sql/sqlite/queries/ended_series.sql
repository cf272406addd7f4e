-- ended_series: the number of jobs that ended in each step, and of those that match. Index: history_finished only, except for a tenant.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, look int8
-- gives: at timestamptz, seen int8, total int8
select (h.finished_at - :since) / :step * :step + :since as at, count(*) as seen,
       count(*) filter (where true
         and h.tenant = :tenant -- when tenant
       ) as total
from (
  select finished_at
         , tenant -- when tenant
  from tidemill_history indexed by tidemill_history_finished
  where finished_at >= :since and finished_at < :until
  order by finished_at desc limit max(:look, 0)) h
group by 1 order by 1

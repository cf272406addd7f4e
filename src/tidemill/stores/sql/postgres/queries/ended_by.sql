-- ended_by: ended jobs counted by group, among the latest to end. Index: history_finished, backwards.
-- takes: group text, since timestamptz, tenant text, look int8, limit int4
-- gives: seen int8, since_at timestamptz, name text, total int8, completed int8, failed int8, cancelled int8, retried int8
-- gives: attempts int8, most_attempts int4, ran int8, run_time interval, longest interval, lag interval
-- gives: longest_lag interval, tenants int8, last_at timestamptz
with recent as materialized (
  select (case :group::text when 'task' then h.task when 'tenant' then h.tenant when 'queue' then h.queue when 'state' then h.state
           else coalesce(replace(h.worker::text, '-', ''), '') end) collate "C" as name,
         h.tenant, h.state, h.attempt, h.run_at, h.started_at, h.finished_at
  from tidemill.history h
  where h.finished_at >= :since
  order by h.finished_at desc, h.id desc limit :look),
grouped as (
  select name, count(*) as total, count(*) filter (where state = 'completed') as completed,
         count(*) filter (where state in ('failed', 'timed_out', 'dead_lettered')) as failed,
         count(*) filter (where state = 'cancelled') as cancelled, count(*) filter (where attempt > 1) as retried,
         sum(attempt) as attempts, max(attempt) as most_attempts, count(started_at) as ran,
         coalesce(sum(greatest(finished_at, started_at) - started_at), interval '0') as run_time,
         coalesce(max(greatest(finished_at, started_at) - started_at), interval '0') as longest,
         coalesce(sum(greatest(started_at, run_at) - run_at), interval '0') as lag,
         coalesce(max(greatest(started_at, run_at) - run_at), interval '0') as longest_lag,
         count(distinct tenant) as tenants, max(finished_at) as last_at
  from recent
  where true
    and tenant = :tenant -- when tenant
  group by name order by count(*) desc, name limit :limit)
select a.seen, a.since_at, g.name, g.total, g.completed, g.failed, g.cancelled, g.retried, g.attempts, g.most_attempts, g.ran,
       g.run_time, g.longest, g.lag, g.longest_lag, g.tenants, g.last_at
from (select count(*) as seen, min(finished_at) as since_at from recent) a left join grouped g on true
order by g.total desc, g.name

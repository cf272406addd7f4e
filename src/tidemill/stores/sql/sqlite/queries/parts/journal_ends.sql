-- journal_ends: writes the ended executions of `ending` to the journal of ends, one row per group. `offset 0` computes each time once.
-- The minute and the buckets are one number, which sorts fastest.
timed as not materialized (
  select tenant, task, queue, worker, state, execution, attempt, finished_at,
         case when worker is not null then max(finished_at - started_at, 0) end as run_time,
         case when worker is not null then max(started_at - run_at, 0) end as lag
  from ending limit -1 offset 0)
insert into tidemill_ends(
  at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
  longest, lag, longest_lag, last_at)
select finished_at / 60000000 * 60000000, tenant, task, queue, worker, state, execution,
       -- include: time_bucket(value=run_time)
       ,
       -- include: time_bucket(value=lag)
       ,
       count(*), count(*) filter (where attempt > 1), sum(attempt), max(attempt), coalesce(sum(run_time), 0),
       coalesce(max(run_time), 0), coalesce(sum(lag), 0), coalesce(max(lag), 0), max(finished_at)
from timed
group by finished_at / 60000000 * 65536 + 256 * coalesce(
         -- include: time_bucket(value=run_time)
         , 255) + coalesce(
         -- include: time_bucket(value=lag)
         , 255), task, tenant, queue, worker, state, execution
;

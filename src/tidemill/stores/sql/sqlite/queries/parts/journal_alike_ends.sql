-- journal_alike_ends: as `journal_ends`, for rows just added to history that differ in their times only. It reads their other values once.
with last as (
  select tenant, task, queue, worker, state, execution from tidemill_history
  where changes() > 0 and rowid = last_insert_rowid()),
timed as not materialized (
  select attempt, finished_at, max(finished_at - started_at, 0) as run_time, max(started_at - run_at, 0) as lag
  from tidemill_history where rowid > last_insert_rowid() - changes() limit -1 offset 0),
grouped as (
  select finished_at / 60000000 * 65536 + 256 * coalesce(
         -- include: time_bucket(value=run_time)
         , 255) + coalesce(
         -- include: time_bucket(value=lag)
         , 255) as place, count(*) as jobs, sum(attempt > 1) as retried, sum(attempt) as attempts, max(attempt) as most_attempts,
         coalesce(sum(run_time), 0) as run_time, coalesce(max(run_time), 0) as longest, coalesce(sum(lag), 0) as lag,
         coalesce(max(lag), 0) as longest_lag, max(finished_at) as last_at
  from timed group by 1)
insert into tidemill_ends(
  at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
  longest, lag, longest_lag, last_at)
select place / 65536 * 60000000, tenant, task, queue, worker, state, execution, nullif(place / 256 % 256, 255),
       nullif(place % 256, 255), jobs, retried, attempts, most_attempts, run_time, longest, lag, longest_lag, last_at
from last cross join grouped
;

-- journal_ends: writes the ended executions of `ending` to the journal of ends, one row per group. `offset 0` computes each time once.
counted as (
  insert into tidemill.ends(
    at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
    longest, lag, longest_lag, last_at)
  select date_bin('1 minute', e.finished_at, 'epoch'), e.tenant, e.task, e.queue, e.worker, e.state, e.execution,
         -- include: time_bucket(value=e.run_time)
         ,
         -- include: time_bucket(value=e.lag)
         , count(*), count(*) filter (where e.attempt > 1),
         sum(e.attempt), max(e.attempt), coalesce(sum(e.run_time), 0), coalesce(max(e.run_time), 0), coalesce(sum(e.lag), 0),
         coalesce(max(e.lag), 0), max(e.finished_at)
  from (
    select tenant, task, queue, worker, state, execution, attempt, finished_at,
           case when worker is not null and started_at is not null
             then greatest((date_part('epoch', finished_at - started_at) * 1000000)::int8, 0) end as run_time,
           case when worker is not null and started_at is not null
             then greatest((date_part('epoch', started_at - run_at) * 1000000)::int8, 0) end as lag
    from ending
    offset 0) e
  group by 1, 2, 3, 4, 5, 6, 7, 8, 9),

-- expand: ended jobs counted per minute: the journal that ending jobs write, and the rollups that it is folded into.
-- serves: 6

-- One row per batch and group. Durations are microseconds; the bucket of a time is the number of bounds that it exceeds.
-- `state` is null if the job goes on, `execution` if no worker ended it, and the buckets if it never ran.
create table tidemill.ends(
  at timestamptz not null,
  tenant text collate "C" not null,
  task text collate "C" not null,
  queue text collate "C" not null,
  worker uuid,
  state text collate "C",
  execution text collate "C",
  run_bucket smallint,
  wait_bucket smallint,
  jobs bigint not null,
  retried bigint not null,
  attempts bigint not null,
  most_attempts int not null,
  run_time bigint not null,
  longest bigint not null,
  lag bigint not null,
  longest_lag bigint not null,
  last_at timestamptz not null)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        vacuum_truncate = off);

create table tidemill.rollups(
  scope text collate "C" not null check (scope in ('detail', 'total', 'worker', 'ever', 'execution')),
  at timestamptz not null,
  unit text collate "C" not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text collate "C" not null,
  task text collate "C" not null,
  queue text collate "C" not null,
  worker text collate "C" not null,
  state text collate "C" not null,
  jobs bigint not null,
  retried bigint not null,
  attempts bigint not null,
  most_attempts int not null,
  ran bigint not null,
  run_time bigint not null,
  longest bigint not null,
  lag bigint not null,
  longest_lag bigint not null,
  last_at timestamptz not null,
  primary key (scope, at, unit, tenant, task, queue, worker, state))
  with (fillfactor = 70);
create index rollups_unit on tidemill.rollups(unit, at);
create index rollups_tenant on tidemill.rollups(tenant, scope, at) where scope in ('detail', 'worker');

create table tidemill.rollup_times(
  scope text collate "C" not null check (scope in ('detail', 'total', 'ever')),
  at timestamptz not null,
  unit text collate "C" not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text collate "C" not null,
  task text collate "C" not null,
  queue text collate "C" not null,
  state text collate "C" not null,
  measure text collate "C" not null check (measure in ('run', 'wait')),
  bucket smallint not null,
  jobs bigint not null,
  time bigint not null,
  primary key (scope, at, unit, tenant, task, queue, state, measure, bucket))
  with (fillfactor = 70);
create index rollup_times_unit on tidemill.rollup_times(unit, at);
create index rollup_times_tenant on tidemill.rollup_times(tenant, scope, at) where scope = 'detail';

-- The bucket of a time in microseconds. Bounds are inclusive.
create function tidemill.time_bucket(micros bigint) returns int language sql immutable as
$$ select width_bucket(micros - 1, '{1000,2000,4000,8000,16000,32000,64000,128000,256000,
                                   512000,1024000,2048000,4096000,8192000,16384000,32768000,65536000,131072000,
                                   262144000,524288000,1048576000,2097152000,4194304000,8388608000,16777216000,33554432000}'::int8[]) $$;

-- Jobs that ended before are counted once, here. Workers of the version before write no journal.
insert into tidemill.ends(
  at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
  longest, lag, longest_lag, last_at)
select date_bin('1 minute', e.finished_at, 'epoch'), e.tenant, e.task, e.queue, e.worker, e.state, e.execution,
       tidemill.time_bucket(e.run_time), tidemill.time_bucket(e.lag), count(*), count(*) filter (where e.attempt > 1),
       sum(e.attempt), max(e.attempt), coalesce(sum(e.run_time), 0), coalesce(max(e.run_time), 0), coalesce(sum(e.lag), 0),
       coalesce(max(e.lag), 0), max(e.finished_at)
from (
  select tenant, task, queue, worker, state, execution, attempt, finished_at,
         case when worker is not null and started_at is not null
           then greatest((date_part('epoch', finished_at - started_at) * 1000000)::int8, 0) end as run_time,
         case when worker is not null and started_at is not null
           then greatest((date_part('epoch', started_at - run_at) * 1000000)::int8, 0) end as lag
  from tidemill.history
  offset 0) e
group by 1, 2, 3, 4, 5, 6, 7, 8, 9;

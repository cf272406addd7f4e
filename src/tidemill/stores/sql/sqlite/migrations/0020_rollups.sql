-- expand: ended jobs counted per minute: the journal that ending jobs write, and the rollups that it is folded into.
-- serves: 6

-- One row per batch and group. Durations are microseconds; the bucket of a time is the number of bounds that it exceeds.
-- `state` is null if the job goes on, `execution` if no worker ended it, and the buckets if it never ran.
create table tidemill_ends(
  seq integer primary key autoincrement,
  at integer not null,
  tenant text not null,
  task text not null,
  queue text not null,
  worker blob,
  state text,
  execution text,
  run_bucket integer,
  wait_bucket integer,
  jobs integer not null,
  retried integer not null,
  attempts integer not null,
  most_attempts integer not null,
  run_time integer not null,
  longest integer not null,
  lag integer not null,
  longest_lag integer not null,
  last_at integer not null) strict;

create table tidemill_rollups(
  scope text not null check (scope in ('detail', 'total', 'worker', 'ever', 'execution')),
  at integer not null,
  unit text not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text not null,
  task text not null,
  queue text not null,
  worker text not null,
  state text not null,
  jobs integer not null,
  retried integer not null,
  attempts integer not null,
  most_attempts integer not null,
  ran integer not null,
  run_time integer not null,
  longest integer not null,
  lag integer not null,
  longest_lag integer not null,
  last_at integer not null,
  primary key (scope, at, unit, tenant, task, queue, worker, state)) strict, without rowid;
create index tidemill_rollups_unit on tidemill_rollups(unit, at);
create index tidemill_rollups_tenant on tidemill_rollups(tenant, scope, at) where scope in ('detail', 'worker');

create table tidemill_rollup_times(
  scope text not null check (scope in ('detail', 'total', 'ever')),
  at integer not null,
  unit text not null check (unit in ('minute', 'quarter', 'hour', 'day', 'ever')),
  tenant text not null,
  task text not null,
  queue text not null,
  state text not null,
  measure text not null check (measure in ('run', 'wait')),
  bucket integer not null,
  jobs integer not null,
  time integer not null,
  primary key (scope, at, unit, tenant, task, queue, state, measure, bucket)) strict, without rowid;
create index tidemill_rollup_times_unit on tidemill_rollup_times(unit, at);
create index tidemill_rollup_times_tenant on tidemill_rollup_times(tenant, scope, at) where scope = 'detail';

-- Jobs that ended before are counted once, here. Workers of the version before write no journal.
with timed as materialized (
  select tenant, task, queue, worker, state, execution, attempt, finished_at,
         case when worker is not null then max(finished_at - started_at, 0) end as run_time,
         case when worker is not null then max(started_at - run_at, 0) end as lag
  from tidemill_history)
insert into tidemill_ends(
  at, tenant, task, queue, worker, state, execution, run_bucket, wait_bucket, jobs, retried, attempts, most_attempts, run_time,
  longest, lag, longest_lag, last_at)
select finished_at / 60000000 * 60000000, tenant, task, queue, worker, state, execution,
       case when run_time is not null then
         case when run_time <= 8192000 then
           case when run_time <= 64000 then
             case when run_time <= 8000 then
               case when run_time <= 2000 then
                 case when run_time <= 1000 then 0 else 1 end
               else
                 case when run_time <= 4000 then 2 else 3 end
               end
             else
               case when run_time <= 32000 then
                 case when run_time <= 16000 then 4 else 5 end
               else
                 6
               end
             end
           else
             case when run_time <= 1024000 then
               case when run_time <= 256000 then
                 case when run_time <= 128000 then 7 else 8 end
               else
                 case when run_time <= 512000 then 9 else 10 end
               end
             else
               case when run_time <= 4096000 then
                 case when run_time <= 2048000 then 11 else 12 end
               else
                 13
               end
             end
           end
         else
           case when run_time <= 1048576000 then
             case when run_time <= 131072000 then
               case when run_time <= 32768000 then
                 case when run_time <= 16384000 then 14 else 15 end
               else
                 case when run_time <= 65536000 then 16 else 17 end
               end
             else
               case when run_time <= 524288000 then
                 case when run_time <= 262144000 then 18 else 19 end
               else
                 20
               end
             end
           else
             case when run_time <= 8388608000 then
               case when run_time <= 4194304000 then
                 case when run_time <= 2097152000 then 21 else 22 end
               else
                 23
               end
             else
               case when run_time <= 33554432000 then
                 case when run_time <= 16777216000 then 24 else 25 end
               else
                 26
               end
             end
           end
         end
       end,
       case when lag is not null then
         case when lag <= 8192000 then
           case when lag <= 64000 then
             case when lag <= 8000 then
               case when lag <= 2000 then
                 case when lag <= 1000 then 0 else 1 end
               else
                 case when lag <= 4000 then 2 else 3 end
               end
             else
               case when lag <= 32000 then
                 case when lag <= 16000 then 4 else 5 end
               else
                 6
               end
             end
           else
             case when lag <= 1024000 then
               case when lag <= 256000 then
                 case when lag <= 128000 then 7 else 8 end
               else
                 case when lag <= 512000 then 9 else 10 end
               end
             else
               case when lag <= 4096000 then
                 case when lag <= 2048000 then 11 else 12 end
               else
                 13
               end
             end
           end
         else
           case when lag <= 1048576000 then
             case when lag <= 131072000 then
               case when lag <= 32768000 then
                 case when lag <= 16384000 then 14 else 15 end
               else
                 case when lag <= 65536000 then 16 else 17 end
               end
             else
               case when lag <= 524288000 then
                 case when lag <= 262144000 then 18 else 19 end
               else
                 20
               end
             end
           else
             case when lag <= 8388608000 then
               case when lag <= 4194304000 then
                 case when lag <= 2097152000 then 21 else 22 end
               else
                 23
               end
             else
               case when lag <= 33554432000 then
                 case when lag <= 16777216000 then 24 else 25 end
               else
                 26
               end
             end
           end
         end
       end,
       count(*), count(*) filter (where attempt > 1), sum(attempt), max(attempt), coalesce(sum(run_time), 0),
       coalesce(max(run_time), 0), coalesce(sum(lag), 0), coalesce(max(lag), 0), max(finished_at)
from timed
group by 1, 2, 3, 4, 5, 6, 7, 8, 9;

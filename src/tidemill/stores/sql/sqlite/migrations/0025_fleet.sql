-- expand: reports of workers and requests to them; the depth of queues over time.
-- serves: 6

alter table tidemill_workers add column supervisor blob;
alter table tidemill_workers add column place integer not null default 0;
alter table tidemill_workers add column report text;

create table if not exists tidemill_worker_pauses(
  supervisor blob not null,
  place integer not null,
  primary key (supervisor, place)) strict, without rowid;

create table if not exists tidemill_worker_scales(
  supervisor blob not null primary key,
  number integer not null check (number > 0),
  processes integer not null check (processes > 0),
  concurrency integer not null check (concurrency >= 0),
  threads integer not null check (threads >= 0),
  children integer not null check (children >= 0)) strict, without rowid;

-- The highest values of each span of time, and the age of the oldest pending job in microseconds.
create table if not exists tidemill_depth_samples(
  queue text not null,
  at integer not null,
  unit text not null check (unit in ('minute', 'quarter', 'hour', 'day')),
  pending integer not null check (pending >= 0),
  scheduled integer not null check (scheduled >= 0),
  oldest integer not null check (oldest >= 0),
  primary key (queue, at, unit)) strict, without rowid;
create index if not exists tidemill_depth_samples_at on tidemill_depth_samples(at, unit);

-- expand: reports of workers and requests to them; the depth of queues over time.
-- serves: 6

alter table tidemill.workers
  add column if not exists supervisor uuid,
  add column if not exists place int not null default 0,
  add column if not exists report text;

create table if not exists tidemill.worker_pauses(
  supervisor uuid not null,
  place int not null,
  primary key (supervisor, place));

create table if not exists tidemill.worker_scales(
  supervisor uuid primary key,
  number bigint not null check (number > 0),
  processes int not null check (processes > 0),
  concurrency int not null check (concurrency >= 0),
  threads int not null check (threads >= 0),
  children int not null check (children >= 0));

-- The highest values of each span of time, and the age of the oldest pending job in microseconds.
create table if not exists tidemill.depth_samples(
  queue text collate "C" not null,
  at timestamptz not null,
  unit text collate "C" not null check (unit in ('minute', 'quarter', 'hour', 'day')),
  pending bigint not null check (pending >= 0),
  scheduled bigint not null check (scheduled >= 0),
  oldest bigint not null check (oldest >= 0),
  primary key (queue, at, unit));
create index if not exists depth_samples_at on tidemill.depth_samples(at, unit);

-- expand: failures of jobs by group, the marks of the groups, and the first start of every release.
-- serves: 6

-- One row per failure, with its job. Rows whose job is no longer live are merged per hour.
create table if not exists tidemill_failures(
  seq integer primary key,
  at integer not null,
  first_at integer not null,
  tenant text not null,
  task text not null,
  fingerprint text not null,
  variant text not null,
  cause text not null,
  message text not null,
  job_id blob,
  jobs integer not null check (jobs > 0)) strict;
create index if not exists tidemill_failures_at on tidemill_failures(at);
create index if not exists tidemill_failures_fingerprint on tidemill_failures(fingerprint, at);

create table if not exists tidemill_error_marks(
  tenant text not null,
  fingerprint text not null,
  status text not null check (status in ('open', 'muted', 'resolved')),
  at integer not null,
  marked_by text,
  primary key (tenant, fingerprint)) strict, without rowid;

create table if not exists tidemill_deploys(
  app text not null,
  release text not null,
  deployed_at integer not null,
  primary key (app, release)) strict, without rowid;

-- expand: failures of jobs by group, the marks of the groups, and the first start of every release.
-- serves: 6

-- One row per failure, with its job. Rows whose job is no longer live are merged per hour.
create table if not exists tidemill.failures(
  at timestamptz not null,
  first_at timestamptz not null,
  tenant text collate "C" not null,
  task text collate "C" not null,
  fingerprint text collate "C" not null,
  variant text collate "C" not null,
  cause text not null,
  message text not null,
  job_id uuid,
  jobs bigint not null check (jobs > 0));
create index if not exists failures_at on tidemill.failures(at);
create index if not exists failures_fingerprint on tidemill.failures(fingerprint, at);

create table if not exists tidemill.error_marks(
  tenant text collate "C" not null,
  fingerprint text collate "C" not null,
  status text not null check (status in ('open', 'muted', 'resolved')),
  at timestamptz not null,
  marked_by text,
  primary key (tenant, fingerprint));

create table if not exists tidemill.deploys(
  app text collate "C" not null,
  release text collate "C" not null,
  deployed_at timestamptz not null,
  primary key (app, release));

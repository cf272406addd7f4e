-- expand: recorded events of subscriptions, and the history of alerts.
-- serves: 6

create table if not exists tidemill.job_events(
  seq bigint generated always as identity primary key,
  subscription text collate "C" not null,
  name text collate "C" not null,
  at timestamptz not null,
  job_id uuid,
  task text,
  tenant text,
  state text,
  data text not null,
  attempts integer not null default 0,
  due_at timestamptz not null,
  error text);
create index if not exists job_events_subscription on tidemill.job_events(subscription, seq);
create index if not exists job_events_delayed on tidemill.job_events(subscription, job_id, due_at) where attempts > 0;

create table if not exists tidemill.alerts(
  id uuid primary key,
  code text collate "C" not null,
  subject text collate "C" not null,
  severity text not null,
  text text not null,
  value double precision not null,
  threshold double precision not null,
  since_at timestamptz,
  opened_at timestamptz not null,
  seen_at timestamptz not null,
  acknowledged_at timestamptz,
  acknowledged_by text,
  recovered_at timestamptz);
create unique index if not exists alerts_open on tidemill.alerts(code, subject) where recovered_at is null;
create index if not exists alerts_opened on tidemill.alerts(opened_at, id);

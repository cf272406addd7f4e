-- expand: recorded events of subscriptions, and the history of alerts.
-- serves: 6

create table if not exists tidemill_job_events(
  seq integer primary key autoincrement,
  subscription text not null,
  name text not null,
  at integer not null,
  job_id blob,
  task text,
  tenant text,
  state text,
  data text not null,
  attempts integer not null default 0,
  due_at integer not null,
  error text) strict;
create index if not exists tidemill_job_events_subscription on tidemill_job_events(subscription, seq);
create index if not exists tidemill_job_events_delayed on tidemill_job_events(subscription, job_id, due_at) where attempts > 0;

create table if not exists tidemill_alerts(
  id blob primary key not null,
  code text not null,
  subject text not null,
  severity text not null,
  text text not null,
  value real not null,
  threshold real not null,
  since_at integer,
  opened_at integer not null,
  seen_at integer not null,
  acknowledged_at integer,
  acknowledged_by text,
  recovered_at integer) strict;
create unique index if not exists tidemill_alerts_open on tidemill_alerts(code, subject) where recovered_at is null;
create index if not exists tidemill_alerts_opened on tidemill_alerts(opened_at, id);

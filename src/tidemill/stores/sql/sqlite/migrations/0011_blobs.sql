-- expand: large arguments and results, in parts.
-- serves: 6

create table if not exists tidemill_blobs(
  job_id blob not null,
  number integer not null check (number >= 0),
  part integer not null check (part >= 0),
  place text,
  content text,
  archived integer not null default 0,
  created_at integer not null,
  primary key (job_id, number, part),
  check (coalesce(place, content) is not null)) strict;
create index if not exists tidemill_blobs_created on tidemill_blobs(created_at) where part = 0 and not archived;

-- expand: streams of values that running jobs write for live readers.
-- serves: 6

create table if not exists tidemill.streams(
  job_id uuid not null,
  name text collate "C" not null,
  number bigint not null,
  n bigint not null check (n > 0),
  data text not null,
  primary key (job_id, name, number, n));

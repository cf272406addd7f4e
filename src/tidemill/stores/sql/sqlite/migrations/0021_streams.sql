-- expand: streams of values that running jobs write for live readers.
-- serves: 6

create table if not exists tidemill_streams(
  job_id blob not null,
  name text not null,
  number integer not null,
  n integer not null check (n > 0),
  data text not null,
  primary key (job_id, name, number, n)) strict, without rowid;

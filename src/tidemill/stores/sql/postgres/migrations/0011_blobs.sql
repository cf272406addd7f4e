-- expand: large arguments and results, in parts.
-- serves: 6

create table if not exists tidemill.blobs(
  job_id uuid not null,
  number bigint not null check (number >= 0),
  part int not null check (part >= 0),
  place text,
  content text,
  archived boolean not null default false,
  created_at timestamptz not null,
  primary key (job_id, number, part),
  check (coalesce(place, content) is not null));
create index if not exists blobs_created on tidemill.blobs(created_at) where part = 0 and not archived;

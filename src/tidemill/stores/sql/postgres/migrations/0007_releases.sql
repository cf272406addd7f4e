-- expand: which deployment of each app wrote its declared schedules last.
-- serves: 6

create table if not exists tidemill.releases(
  app text primary key,
  revision integer not null check (revision > 0),
  release text,
  deployed_at timestamptz not null,
  seen_at timestamptz not null,
  forced_at timestamptz);

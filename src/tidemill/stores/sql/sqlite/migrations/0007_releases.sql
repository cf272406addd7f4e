-- expand: which deployment of each app wrote its declared schedules last.
-- serves: 6

create table if not exists tidemill_releases(
  app text not null primary key,
  revision integer not null check (revision > 0),
  release text,
  deployed_at integer not null,
  seen_at integer not null,
  forced_at integer) strict;

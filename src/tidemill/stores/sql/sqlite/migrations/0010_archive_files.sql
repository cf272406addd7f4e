-- expand: the catalogue of archive files.
-- serves: 6

create table tidemill_archive_files(
  id blob primary key not null,
  place text not null,
  path text not null,
  tier text not null,
  format text not null,
  rows integer not null,
  bytes integer not null,
  sha256 text not null,
  first_id blob not null,
  last_id blob not null,
  first_ended_at integer not null,
  last_ended_at integer not null,
  tenants text not null,
  tasks text not null,
  states text not null,
  frames text not null,
  archived_at integer not null) strict;
create index tidemill_archive_files_ended on tidemill_archive_files(place, tier, first_ended_at, id);

create table tidemill_archive_entries(
  id blob not null,
  file blob not null,
  frame integer not null,
  primary key (id, file)) strict, without rowid;

-- The record of migrations itself, made before the first of them. It is no migration: it has no number and no checksum.

create table tidemill_migrations(
  version integer primary key,
  name text not null,
  checksum text not null,
  applied_at integer not null default (strftime('%s', 'now') * 1000000)) strict;

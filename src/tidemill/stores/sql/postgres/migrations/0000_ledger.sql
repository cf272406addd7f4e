-- The record of migrations itself, made before the first of them. It is no migration: it has no number and no checksum.

create table tidemill.migrations(
  version int primary key,
  name text not null,
  checksum text not null,
  applied_at timestamptz not null default now());

-- expand: gates for pending jobs that count against limits; the rules, and what is counted. Nothing has used the columns that go.

alter table tidemill_ready add column gate text generated always as (coalesce(limits, '')) virtual;
drop index tidemill_ready_claim;
create index tidemill_ready_claim on tidemill_ready(queue, tenant, priority desc, gate);

alter table tidemill_limits drop column used;
alter table tidemill_limits drop column state;
alter table tidemill_limits add column burst integer;
alter table tidemill_limits add column breaker text;
alter table tidemill_limits add column pinned integer not null default 0;
alter table tidemill_limits add column changed_by text;

create table tidemill_uses(
  name text not null primary key,
  used integer not null default 0 check (used >= 0),
  full_until_at integer,
  breaker text,
  changed_at integer not null) strict, without rowid;
create index tidemill_uses_held on tidemill_uses(name) where used > 0;

create table tidemill_starts(
  number integer primary key,
  name text not null,
  begun_at integer not null,
  jobs integer not null) strict;
create index tidemill_starts_name on tidemill_starts(name, begun_at);

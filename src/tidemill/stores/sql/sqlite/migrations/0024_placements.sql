-- expand: the shard of each tenant.
-- serves: 6

create table if not exists tidemill_placements(
  tenant text not null primary key,
  shard text not null,
  state text not null check (state in ('placed', 'moving', 'draining')),
  target text,
  former text not null,
  epoch integer not null check (epoch > 0),
  changed_at integer not null) strict;

-- expand: the shard of each tenant.
-- serves: 6

create table if not exists tidemill.placements(
  tenant text collate "C" primary key,
  shard text not null,
  state text not null check (state in ('placed', 'moving', 'draining')),
  target text,
  former text not null,
  epoch bigint not null check (epoch > 0),
  changed_at timestamptz not null);

-- expand: the documents of flows whose jobs have left the live tables.
-- serves: 6

create table if not exists tidemill_archived_flows(
  id blob not null primary key,
  tenant text not null,
  kind text not null check (kind in ('flow', 'batch')),
  name text not null,
  key text,
  state text not null check (state in ('completed', 'failed', 'cancelled')),
  created_at integer not null,
  ended_at integer not null,
  tier text not null,
  policy text not null,
  summary text not null,
  document text not null,
  fingerprint text not null,
  archived_at integer not null) strict;
create index if not exists tidemill_archived_flows_ended on tidemill_archived_flows(tier, ended_at, id);

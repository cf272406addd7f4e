-- expand: the documents of flows whose jobs have left the live tables.
-- serves: 6

create table if not exists tidemill.archived_flows(
  id uuid primary key,
  tenant text collate "C" not null,
  kind text not null check (kind in ('flow', 'batch')),
  name text collate "C" not null,
  key text collate "C",
  state text not null check (state in ('completed', 'failed', 'cancelled')),
  created_at timestamptz not null,
  ended_at timestamptz not null,
  tier text not null,
  policy text not null,
  summary text not null,
  document text not null,
  fingerprint text not null,
  archived_at timestamptz not null);
create index if not exists archived_flows_ended on tidemill.archived_flows(tier, ended_at, id);

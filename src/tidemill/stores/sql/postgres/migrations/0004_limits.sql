-- expand: gates for pending jobs that count against limits; the rules, and what is counted. Nothing has used the columns that go.

alter table tidemill.ready
  add column gate text collate "C" not null generated always as (coalesce(limits, '')) stored;
drop index tidemill.ready_claim;
create index ready_claim on tidemill.ready(queue, tenant, priority desc, gate, seq);

alter table tidemill.limits
  drop column used,
  drop column state,
  add column burst bigint,
  add column breaker text,
  add column pinned boolean not null default false,
  add column changed_by text;

create table tidemill.uses(
  name text collate "C" primary key,
  used int not null default 0 check (used >= 0),
  full_until_at timestamptz,
  breaker text,
  changed_at timestamptz not null)
  with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0);
create index uses_held on tidemill.uses(name) where used > 0;

create table tidemill.starts(
  number bigint generated always as identity primary key,
  name text collate "C" not null,
  begun_at timestamptz not null,
  jobs int not null)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index starts_name on tidemill.starts(name, begun_at);

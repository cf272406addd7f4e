-- expand: the catalogue of archive files; the archive in monthly partitions by the time in the job's id.
-- serves: 6

create table tidemill.archive_files(
  id uuid primary key,
  place text collate "C" not null,
  path text not null,
  tier text not null,
  format text not null,
  rows bigint not null,
  bytes bigint not null,
  sha256 text not null,
  first_id uuid not null,
  last_id uuid not null,
  first_ended_at timestamptz not null,
  last_ended_at timestamptz not null,
  tenants text not null,
  tasks text not null,
  states text not null,
  frames text not null,
  archived_at timestamptz not null);
create index archive_files_ended on tidemill.archive_files(place, tier, first_ended_at, id);

create table tidemill.archive_entries(
  id uuid not null,
  file uuid not null,
  frame integer not null,
  primary key (id, file));

-- The smallest id of an instant: a UUID of version 7 begins with its milliseconds.
create function tidemill.id_floor(floor_at timestamptz) returns uuid language sql immutable as
$$ select (lpad(to_hex(floor(extract(epoch from floor_at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$;

alter table tidemill.archive rename to archive_before;
alter table tidemill.archive_before rename constraint archive_pkey to archive_before_pkey;
alter index tidemill.archive_ended rename to archive_before_ended;
alter index tidemill.archive_task rename to archive_before_task;
alter index tidemill.archive_correlation rename to archive_before_correlation;
alter index tidemill.archive_parent rename to archive_before_parent;

create table tidemill.archive(like tidemill.archive_before including defaults including storage) partition by range (id);
alter table tidemill.archive add constraint archive_pkey primary key (id);
create index archive_ended on tidemill.archive(tier, finished_at);
create index archive_task on tidemill.archive(task, id);
create index archive_correlation on tidemill.archive(correlation_id, id) where correlation_id is not null;
create index archive_parent on tidemill.archive(parent_id, id) where parent_id is not null;
create table tidemill.archive_default partition of tidemill.archive default;

-- Documents of the months until now stay in their table, which becomes the first partition.
do $$
declare
  bound uuid := tidemill.id_floor((date_trunc('month', now() at time zone 'UTC') + interval '1 month') at time zone 'UTC');
begin
  with later as (delete from tidemill.archive_before where id >= bound returning *)
  insert into tidemill.archive_default select * from later;
  execute format('alter table tidemill.archive attach partition tidemill.archive_before for values from (minvalue) to (%L)', bound);
end $$;

-- Makes the partition of a month; documents of that month leave the default partition. False if it exists.
create function tidemill.make_archive_month(month_at timestamptz) returns boolean language plpgsql as $$
declare
  start timestamp := date_trunc('month', month_at at time zone 'UTC');
  name text := 'archive_' || to_char(start, 'YYYY_MM');
  low uuid := tidemill.id_floor(start at time zone 'UTC');
  high uuid := tidemill.id_floor((start + interval '1 month') at time zone 'UTC');
begin
  perform pg_advisory_xact_lock(hashtext('tidemill.archive'));
  if exists (
    select 1 from pg_catalog.pg_inherits i
    where i.inhparent = 'tidemill.archive'::regclass
      and (i.inhrelid = to_regclass('tidemill.' || name)
           or (i.inhrelid = 'tidemill.archive_before'::regclass
               and low < (select (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::uuid
                          from pg_catalog.pg_class c where c.oid = i.inhrelid))))
  then
    return false;
  end if;
  perform set_config('lock_timeout', '200ms', true);
  execute format('create table tidemill.%I (like tidemill.archive including all)', name);
  execute format('with moved as (delete from tidemill.archive_default where id >= %L and id < %L returning *) '
                 'insert into tidemill.%I select * from moved', low, high, name);
  execute format('alter table tidemill.archive attach partition tidemill.%I for values from (%L) to (%L)', name, low, high);
  return true;
end $$;

-- Drops the months whose documents are all of one tier and ended before an instant; returns the number of documents.
-- A month with large values stays: they are released document by document.
create function tidemill.drop_archive_months(only_tier text, until_at timestamptz) returns bigint language plpgsql as $$
declare
  part record;
  kept boolean;
  counted bigint;
  total bigint := 0;
begin
  perform pg_advisory_xact_lock(hashtext('tidemill.archive'));
  perform set_config('lock_timeout', '200ms', true);
  for part in
    select c.relname as name
    from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'tidemill.archive'::regclass and c.relname <> 'archive_default'
      and (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::uuid <= tidemill.id_floor(until_at)
    order by c.relname
  loop
    execute format('select exists (select 1 from tidemill.%I where tier > $1 or tier < $1) '
                   'or exists (select 1 from tidemill.%I where tier = $1 and finished_at >= $2) '
                   'or exists (select 1 from tidemill.blobs b join tidemill.%I d on d.id = b.job_id where b.archived)',
                   part.name, part.name, part.name)
      into kept using only_tier, until_at;
    continue when kept;
    execute format('lock table tidemill.%I in access exclusive mode', part.name);
    execute format('select count(*), coalesce(bool_or(tier <> $1 or finished_at >= $2), false) from tidemill.%I', part.name)
      into counted, kept using only_tier, until_at;
    continue when kept;
    total := total + counted;
    if part.name = 'archive_before' then
      truncate tidemill.archive_before;
    else
      execute format('drop table tidemill.%I', part.name);
    end if;
  end loop;
  return total;
end $$;

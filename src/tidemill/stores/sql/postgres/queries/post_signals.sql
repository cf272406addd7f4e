-- post_signals: stores signals to live jobs, each once per key, up to a number of unread ones; returns the answer to each.
-- Locks no job: a signal may be part of a user's long transaction. Two transactions at once may exceed the number a little.
-- Indexes: the primary keys of the job tables, signals_key, signals_unread.
-- takes: now timestamptz, most int4
-- items: job_id uuid, tenant text, name text, payload text, key text, source text
-- gives: n int8, answer text
with item as materialized (
  select * from unnest(:job_id::uuid[], :tenant::text[], :name::text[], :payload::text[], :key::text[], :source::text[]) with ordinality
    as x(job_id, tenant, name, payload, key, source, n)),
target as materialized (
  select x.job_id, x.name, x.payload, x.key, x.source, x.n, j.tenant, j.state,
    x.key is not null and (
      exists (select from tidemill.signals s where s.job_id = x.job_id and s.key = x.key)
      or exists (select from item y where y.job_id = x.job_id and y.key = x.key and y.n < x.n)) as repeated
  from item x left join lateral (
    select tenant, state from tidemill.jobs j where j.id = x.job_id and x.tenant in ('*', j.tenant)) j on true),
fresh as materialized (
  select t.*, row_number() over (partition by t.job_id order by t.n) + u.unread > :most::int as over
  from target t cross join lateral (
    select count(*) as unread from (
      select from tidemill.signals s where s.job_id = t.job_id and s.taken_at is null limit :most::int) unread) u
  where t.state not in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered') and not t.repeated),
stored as (
  insert into tidemill.signals(job_id, tenant, name, payload, key, source, created_at)
  select job_id, tenant, name, payload, key, source, coalesce(:now::timestamptz, now()) from fresh where not over order by n
  on conflict (job_id, key) where key is not null do nothing
  returning job_id, key)
select t.n, case
  when t.state is null then 'missing'
  when t.repeated then 'repeated'
  when f.n is null then 'ended'
  when f.over then 'full'
  when t.key is not null and not exists (select from stored s where s.job_id = t.job_id and s.key = t.key) then 'repeated'
  else 'accepted' end as answer
from target t left join fresh f on f.n = t.n order by t.n

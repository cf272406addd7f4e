-- retake_keys: lets ended jobs that are about to be reopened take their unique keys again; returns those whose key is held.
-- Locks the jobs, so that nothing changes before they move in the same transaction.
-- takes: now timestamptz
-- items: id uuid, tenant text, expect text
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :tenant::text[], :expect::text[]) with ordinality as x(id, tenant, expect, n)
  order by id),
keyed as materialized (
  select j.id, j.tenant, j.unique_key, x.n from tidemill.history j join item x on x.id = j.id and x.tenant in ('*', j.tenant)
  where j.unique_key is not null and j.state = any(string_to_array(x.expect, ','))
  for update of j),
taken as (
  insert into tidemill.uniques as u (tenant, key, job_id, live)
  select distinct on (tenant, unique_key collate "C") tenant, unique_key, id, true
  from keyed order by tenant, unique_key collate "C", n
  on conflict (tenant, key) do update
    set job_id = excluded.job_id, live = true,
        window_ends_at = case when u.job_id = excluded.job_id then u.window_ends_at end
    where u.job_id = excluded.job_id
       or (not u.live and (u.window_ends_at is null or u.window_ends_at <= coalesce(:now::timestamptz, now())))
  returning job_id)
select id from keyed where id not in (select job_id from taken)

-- enqueue_alike: inserts jobs that differ only in id and arguments and are due now, all or none; returns the ids already stored.
-- PostgreSQL only: the simple case of `enqueue`, without fourteen arrays and the lookups of keys and details.
-- takes: now timestamptz, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval
-- takes: expires_at timestamptz
-- items: id uuid, args text
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :args::text[]) with ordinality as x(id, args, n)),
-- include: taken
due as (
  insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, until_claimed, detailed, args)
  select id, :tenant, :queue, :task, :priority, 0, :max_attempts, 0, 0, coalesce(:now::timestamptz, now()),
         coalesce(:now::timestamptz, now()), :expires_at::timestamptz, :timeout::interval, false, false, args
  from item where not exists (select from taken) order by n)
select id from taken

-- start: changes claimed jobs to running; returns the lost ids. Locks jobs in the order of their ids.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- takes: now timestamptz
-- items: id uuid, token int8, worker uuid, started_ago float8
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :token::bigint[], :worker::uuid[], :started_ago::float8[]) as x(id, token, worker, started_ago)
  order by id),
flipped as (
  update tidemill.running r
  set state = 'running', started_at = coalesce(r.started_at, coalesce(:now::timestamptz, now()) - make_interval(secs => x.started_ago))
  from item x where r.id = x.id and r.token = x.token and r.worker is not distinct from x.worker
    and (select set_config('synchronous_commit', -- when alone
           case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
  returning r.id)
select id from item except select id from flipped

-- start: turns claimed jobs to running; answers with the ids that are lost. Locks jobs in the order of their ids.
-- takes: now timestamptz
-- items: id uuid, token int8
-- gives: id uuid
with item as materialized (select * from unnest(:id::uuid[], :token::bigint[]) as x(id, token) order by id),
flipped as (
  update tidemill.running r
  set state = 'running', started_at = coalesce(r.started_at, coalesce(:now::timestamptz, now()))
  from item x where r.id = x.id and r.token = x.token
  returning r.id)
select id from item except select id from flipped

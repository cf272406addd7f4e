-- report: writes the progress of held jobs (no index is touched); answers with the ids that are lost.
-- Locks jobs in the order of their ids.
-- items: id uuid, token int8, progress text
-- gives: id uuid
with item as materialized (
  select * from unnest(:id::uuid[], :token::bigint[], :progress::text[]) as x(id, token, progress) order by id),
written as (
  update tidemill.running r set progress = x.progress from item x where r.id = x.id and r.token = x.token
  returning r.id)
select id from item except select id from written

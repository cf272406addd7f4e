-- drop_flows: deletes ended flows of which no job is left, with the groups in them and their joins; returns the deleted ids.
-- takes: ids uuids
-- gives: id uuid
with recursive gone as (
  select f.id, true as asked from tidemill.flows f
  where f.id = any(:ids::uuid[]) and f.ended_at is not null
    and not exists (select from tidemill.details t where t.flow_id = f.id)
    and not exists (select from tidemill.details t where t.group_id = f.id)
  union
  select f.id, false from gone g join tidemill.flows f on f.group_id = g.id),
flows_gone as (delete from tidemill.flows where id = any(array(select id from gone))),
joins_gone as (delete from tidemill.joins where id = any(array(select id from gone)))
select id from gone where asked

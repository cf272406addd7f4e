-- drop_flows: deletes ended flows of which no job is left, with the groups in them and their joins; returns the deleted ids.
-- takes: ids uuids
-- gives: id uuid
delete from temp.tidemill_gone
;
insert into temp.tidemill_gone(id, detailed)
with recursive gone(id, asked) as (
  select f.id, 1 from tidemill_flows f
  where f.id in (select unhex(value) from json_each(:ids)) and f.ended_at is not null
    and not exists (select 1 from tidemill_details t where t.flow_id = f.id)
    and not exists (select 1 from tidemill_details t where t.group_id = f.id)
  union
  select f.id, 0 from gone g cross join tidemill_flows f on f.group_id = g.id)
select id, max(asked) from gone group by id
;
delete from tidemill_flows where id in (select id from temp.tidemill_gone)
;
delete from tidemill_joins where id in (select id from temp.tidemill_gone)
;
select id from temp.tidemill_gone where detailed

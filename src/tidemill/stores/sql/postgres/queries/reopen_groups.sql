-- reopen_groups: lets ended groups run again, in their next round; returns the states in which they had ended.
-- takes: ids uuids
-- gives: id uuid, state text
with ended as materialized (
  select id, state from tidemill.flows where id = any(:ids::uuid[]) and ended_at is not null order by id for update),
running as (
  update tidemill.flows f set ended_at = null, state = 'running', round = round + 1 from ended e where f.id = e.id)
select id, state from ended

-- lock_groups: groups, locked in the order of their ids.
-- takes: ids uuids
select
  -- include: flow_row
from tidemill_flows where id in (select unhex(value) from json_each(:ids)) order by id

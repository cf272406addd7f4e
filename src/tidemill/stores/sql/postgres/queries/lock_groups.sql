-- lock_groups: groups, locked in the order of their ids.
-- takes: ids uuids
select
  -- include: flow_row
from tidemill.flows where id = any(:ids::uuid[]) order by id for update

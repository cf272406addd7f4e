-- flow: groups by id.
-- takes: ids uuids, tenant text
select
  -- include: flow_row
from tidemill_flows where id in (select unhex(value) from json_each(:ids))
  and tenant = :tenant -- when tenant
order by id

-- flow: groups by id.
-- takes: ids uuids, tenant text
select
  -- include: flow_row
from tidemill.flows where id = any(:ids::uuid[])
  and tenant = :tenant -- when tenant
order by id

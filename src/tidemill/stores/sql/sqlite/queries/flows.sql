-- flows: a page of matching groups, the newest first.
-- takes: tenant text, after uuid, kinds texts, name text, key text, states texts, group_id uuid, now timestamptz, limit int4
select
  -- include: flow_row
from tidemill_flows
where true
  and tenant = :tenant -- when tenant
  and id < :after -- when after
  and kind in (select value from json_each(:kinds)) -- when kinds
  and name = :name -- when name
  and key = :key -- when key
  and state in (select value from json_each(:states)) -- when states
  and group_id = :group_id -- when group_id
  and ended_at is null and (stops or cancel_reason is not null or expires_at <= :now) -- when ending
  and ended_at is null and cancel_reason is null and kind = 'map' -- when abandoned
  and exists (select 1 from tidemill_history h where h.id = unhex(rules ->> '$.owner') and h.state = 'cancelled') -- when abandoned
order by id desc limit :limit

-- flows: a page of matching groups, the newest first.
-- takes: tenant text, after uuid, kinds texts, name text, key text, states texts, group_id uuid, now timestamptz, limit int4
select
  -- include: flow_row
from tidemill.flows
where true
  and tenant = :tenant -- when tenant
  and id < :after::uuid -- when after
  and kind = any(:kinds::text[]) -- when kinds
  and name = :name -- when name
  and key = :key -- when key
  and state = any(:states::text[]) -- when states
  and group_id = :group_id::uuid -- when group_id
  and ended_at is null and (stops or cancel_reason is not null or expires_at <= coalesce(:now::timestamptz, now())) -- when ending
  and ended_at is null and cancel_reason is null and kind = 'map' -- when abandoned
  and exists (select from tidemill.history h where h.id = (rules ->> 'owner')::uuid and h.state = 'cancelled') -- when abandoned
order by id desc limit :limit

-- close_groups: ends live groups whose join is full, in the states that the caller has decided.
-- takes: now timestamptz
-- items: id uuid, state text
update tidemill.flows f set ended_at = coalesce(:now::timestamptz, now()), state = x.state
from unnest(:id::uuid[], :state::text[]) as x(id, state) where f.id = x.id and f.ended_at is null

-- declare_gone: ends the leases of workers whose heartbeat counter is unchanged; returns those workers.
-- Locks the rows of these workers, in the order of their ids.
-- takes: now timestamptz, ids uuids, beats int8s
-- gives: id uuid
with seen as materialized (
  select w.id from unnest(:ids::uuid[], :beats::bigint[]) as x(id, beats)
  join tidemill.workers w on w.id = x.id and w.beats = x.beats and w.state <> 'stopped'
  order by w.id for update of w)
update tidemill.workers w set expires_at = least(w.expires_at, coalesce(:now::timestamptz, now())), state = 'stopped'
from seen where w.id = seen.id returning w.id

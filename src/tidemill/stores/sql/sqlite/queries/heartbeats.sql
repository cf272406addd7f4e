-- heartbeats: the heartbeat counter and the lease of every worker that was not declared gone.
-- Reads all workers, which are few. `left_over` is the remaining lease by the store's clock; it is negative after the lease expired.
-- takes: now timestamptz
-- gives: id uuid, beats int8, lease interval, left_over interval
select id, beats, expires_at - beat_at as lease, expires_at - :now as left_over
from tidemill_workers where state <> 'stopped' order by id

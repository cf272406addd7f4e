-- declare_gone: ends the leases of workers whose heartbeat counter is unchanged; returns those workers.
-- takes: now timestamptz, ids uuids, beats int8s
-- gives: id uuid
update tidemill_workers set expires_at = min(expires_at, :now), state = 'stopped'
where (id, beats) in (
  select unhex(i.value), b.value from json_each(:ids) i join json_each(:beats) b on b.key = i.key)
  and state <> 'stopped'
returning id

-- live_worker: whether the claiming worker has a live lease; one lookup in workers_pkey.
exists (
  select from tidemill.workers w
  where w.id = :worker::uuid and w.state <> 'stopped' and w.expires_at > coalesce(:now::timestamptz, now()))

-- living_workers: those of these workers that have a live lease and may claim; lookups in workers_pkey.
-- takes: now timestamptz, ids uuids
-- gives: id uuid
select id from tidemill.workers
where id = any(:ids::uuid[]) and state <> 'stopped' and expires_at > coalesce(:now::timestamptz, now())

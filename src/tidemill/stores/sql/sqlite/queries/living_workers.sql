-- living_workers: those of these workers that have a live lease and may claim; lookups by the primary key.
-- takes: now timestamptz, ids uuids
-- gives: id uuid
select id from tidemill_workers
where id in (select unhex(value) from json_each(:ids)) and state <> 'stopped' and expires_at > :now

-- old_workers: live workers of versions that do not count ends.
-- takes: now timestamptz, schema_version int4
-- gives: name text
select name from tidemill.workers
where state <> 'stopped' and expires_at > coalesce(:now::timestamptz, now()) and schema_version < :schema_version limit 3

-- old_workers: live workers of versions that do not count ends.
-- takes: now timestamptz, schema_version int4
-- gives: name text
select name from tidemill_workers where state <> 'stopped' and expires_at > :now and schema_version < :schema_version limit 3

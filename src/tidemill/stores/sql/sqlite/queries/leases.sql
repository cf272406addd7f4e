-- leases: all leases by name.
-- gives: name text, holder uuid, term int8, acquired_at timestamptz, beat_at timestamptz, expires_at timestamptz
-- gives: metadata text
select name, holder, term, acquired_at, beat_at, expires_at, metadata from tidemill_leases order by name

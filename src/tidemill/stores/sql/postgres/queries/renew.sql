-- renew: renews a lease that the holder still has and that has not expired. No row: stop.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- takes: now timestamptz, name text, holder uuid, term int8, ttl interval, metadata text
-- gives: name text
update tidemill.leases
set beat_at = coalesce(:now::timestamptz, now()),
    expires_at = coalesce(:now::timestamptz, now()) + :ttl::interval,
    metadata = coalesce(:metadata, metadata)
where name = :name and holder = :holder and term = :term and expires_at > coalesce(:now::timestamptz, now())
  and (select set_config('synchronous_commit', -- when alone
         case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
returning name

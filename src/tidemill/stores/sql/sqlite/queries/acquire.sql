-- acquire: takes a lease that is free or expired, with the next term, or renews the caller's own. No row: another holds it.
-- A lease whose term and beat the caller has seen unchanged for too long is taken as well.
-- takes: now timestamptz, name text, holder uuid, ttl interval, term int8, beat_at timestamptz
-- gives: name text, holder uuid, term int8, acquired_at timestamptz, beat_at timestamptz, expires_at timestamptz
-- gives: metadata text
insert into tidemill_leases as l (name, holder, term, acquired_at, beat_at, expires_at, metadata)
values (:name, :holder, 1, :now, :now, :now + :ttl, '{}')
on conflict (name) do update set
  term = case when l.holder = excluded.holder and l.expires_at > excluded.beat_at then l.term else l.term + 1 end,
  acquired_at = case when l.holder = excluded.holder and l.expires_at > excluded.beat_at then l.acquired_at
                     else excluded.acquired_at end,
  metadata = case when l.holder = excluded.holder and l.expires_at > excluded.beat_at then l.metadata else '{}' end,
  holder = excluded.holder, beat_at = excluded.beat_at, expires_at = excluded.expires_at
where l.holder is null or l.holder = excluded.holder or l.expires_at <= excluded.beat_at
  or (l.term = :term and l.beat_at = :beat_at)
returning name, holder, term, acquired_at, beat_at, expires_at, metadata

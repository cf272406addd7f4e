-- put_release: writes an app's release record over the revision it names (0: a new one); returns the app if it was written.
-- Nothing is written if the stored revision differs. Locks the record. Index: the primary key.
-- takes: now timestamptz, app text, revision int4, release text, deployed_at timestamptz, forced_at timestamptz
-- gives: app text
insert into tidemill.releases as r (app, revision, release, deployed_at, seen_at, forced_at)
select :app::text, :revision::int + 1, :release::text, :deployed_at::timestamptz, coalesce(:now::timestamptz, now()),
       :forced_at::timestamptz
where :revision::int = 0 or exists (select from tidemill.releases where app = :app::text)
on conflict (app) do update set
  revision = excluded.revision, release = excluded.release, deployed_at = excluded.deployed_at, seen_at = excluded.seen_at,
  forced_at = excluded.forced_at
  where r.revision = excluded.revision - 1
returning app

-- put_release: writes an app's release record over the revision it names (0: a new one); returns the app if it was written.
-- Nothing is written if the stored revision differs. Index: the primary key.
-- takes: now timestamptz, app text, revision int4, release text, deployed_at timestamptz, forced_at timestamptz
-- gives: app text
insert into tidemill_releases as r (app, revision, release, deployed_at, seen_at, forced_at)
select :app, :revision + 1, :release, :deployed_at, :now, :forced_at
where :revision = 0 or exists (select 1 from tidemill_releases where app = :app)
on conflict (app) do update set
  revision = excluded.revision, release = excluded.release, deployed_at = excluded.deployed_at, seen_at = excluded.seen_at,
  forced_at = excluded.forced_at
  where r.revision = excluded.revision - 1
returning app

-- release_of: the release record of an app. Index: the primary key.
-- takes: app text
-- gives: revision int4, release text, deployed_at timestamptz, seen_at timestamptz, forced_at timestamptz
select revision, release, deployed_at, seen_at, forced_at from tidemill.releases where app = :app

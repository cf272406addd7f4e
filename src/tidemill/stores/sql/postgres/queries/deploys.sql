-- deploys: the first starts of releases, latest first. The table has one row per release.
-- takes: limit int4
-- gives: app text, release text, deployed_at timestamptz
select app, release, deployed_at from tidemill.deploys order by deployed_at desc, app, release limit :limit

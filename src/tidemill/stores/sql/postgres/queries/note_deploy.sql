-- note_deploy: records the first start of a release; returns the app if it is the first. Index: the primary key.
-- takes: now timestamptz, app text, release text
-- gives: app text
insert into tidemill.deploys(app, release, deployed_at)
values (:app::text, :release::text, coalesce(:now::timestamptz, now()))
on conflict (app, release) do nothing
returning app

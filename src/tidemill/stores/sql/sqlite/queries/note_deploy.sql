-- note_deploy: records the first start of a release; returns the app if it is the first. Index: the primary key.
-- takes: now timestamptz, app text, release text
-- gives: app text
insert into tidemill_deploys(app, release, deployed_at)
values (:app, :release, :now)
on conflict (app, release) do nothing
returning app

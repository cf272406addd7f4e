-- expand: when the deployment that declared a task began, so that the newest one decides.
-- serves: 6

alter table tidemill_tasks add column deployed_at integer;

-- expand: when the deployment that declared a task began, so that the newest one decides.
-- serves: 6

alter table tidemill.tasks add column if not exists deployed_at timestamptz;

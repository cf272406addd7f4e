-- append_events: records events, one row for each subscription.
-- takes: now timestamptz
-- items: subscription text, name text, job_id uuid, task text, tenant text, state text, data text
insert into tidemill_job_events(subscription, name, at, job_id, task, tenant, state, data, due_at)
values (:subscription, :name, :now, :job_id, :task, :tenant, :state, :data, :now)

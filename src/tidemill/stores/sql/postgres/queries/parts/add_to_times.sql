-- add_to_times: adds to the times that exist.
on conflict (scope, at, unit, tenant, task, queue, state, measure, bucket) do update set jobs = r.jobs + excluded.jobs, time = r.time + excluded.time

-- times_columns: the columns of the times of a rollup.
scope, at, unit, tenant, task, queue, state, measure, bucket, jobs, time

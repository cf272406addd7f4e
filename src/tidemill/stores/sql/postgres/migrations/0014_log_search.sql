-- expand: an index that lists the log lines of all jobs by time.
-- serves: 6

create index if not exists logs_at on tidemill.logs(at, position);

-- restore_logs: inserts the log lines of restored jobs, in their order.
-- items: job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text, duration interval
insert into tidemill_logs(job_id, number, at, level, stage, message, details, duration)
values (:job_id, :number, :at, :level, :stage, :message, :details, :duration)

-- restore_logs: inserts the log lines of restored jobs, in their order.
-- items: job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text, duration interval
insert into tidemill.logs(job_id, number, at, level, stage, message, details, duration)
select x.job_id, x.number, x.at, x.level, x.stage, x.message, x.details, x.duration
from unnest(:job_id::uuid[], :number::bigint[], :at::timestamptz[], :level::text[], :stage::text[], :message::text[],
            :details::text[], :duration::interval[]) with ordinality
     as x(job_id, number, at, level, stage, message, details, duration, n)
order by x.n

-- later: the number of jobs of each queue that are due after now. Reads all scheduled jobs; one process asks for it once a minute.
-- takes: now timestamptz
-- gives: queue text, scheduled int8
select queue, count(*) as scheduled from tidemill.scheduled where run_at > coalesce(:now::timestamptz, now())
group by queue order by queue

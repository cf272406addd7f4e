-- archivable: ended jobs that are old enough, the longest ended first. Index: history_finished.
-- takes: now timestamptz, max_age interval, states texts, tasks texts, limit int4
select
  -- include: job_row(args=args; result=result)
from tidemill.history
where finished_at <= coalesce(:now::timestamptz, now()) - :max_age::interval and state = any(:states::text[])
  and task = any(:tasks::text[]) -- when tasks
order by finished_at, id limit :limit

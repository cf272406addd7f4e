-- count_ended: the exact number of jobs that ended since an instant, by state. Completed jobs are the total less all others.
-- Indexes: history_finished for the total, history_troubled_at for the others; for one tenant it also reads the rows.
-- takes: since timestamptz, tenant text
-- gives: state text, jobs int8
with troubled as materialized (
  select s.value as state, (
    select count(*) from tidemill_history f indexed by tidemill_history_troubled_at
    where f.state = s.value and f.state <> 'completed' and f.finished_at >= :since
      and f.tenant = :tenant -- when tenant
    ) as jobs
  from json_each('["failed", "timed_out", "cancelled", "dead_lettered"]') s)
select state, jobs from troubled
union all
select 'completed', (
  select count(*) from tidemill_history h indexed by tidemill_history_finished
  where h.finished_at >= :since
    and h.tenant = :tenant -- when tenant
  ) - (select sum(jobs) from troubled)

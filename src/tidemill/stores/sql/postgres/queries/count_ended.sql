-- count_ended: the exact number of jobs that ended since an instant, by state. Completed jobs are the total less all others.
-- Indexes: history_finished for the total, history_troubled_at for the others; for one tenant it also reads the rows.
-- takes: since timestamptz, tenant text
-- gives: state text, jobs int8
with troubled as materialized (
  select s.state, h.jobs
  from unnest(array['failed', 'timed_out', 'cancelled', 'dead_lettered']) s(state) cross join lateral (
    select count(*) as jobs from tidemill.history f
    where f.state = s.state and f.state <> 'completed' and f.finished_at >= :since
      and f.tenant = :tenant -- when tenant
    ) h)
select state, jobs from troubled
union all
select 'completed', (
  select count(*) from tidemill.history h
  where h.finished_at >= :since
    and h.tenant = :tenant -- when tenant
  ) - (select sum(jobs) from troubled)::int8

-- series_samples: run times and lags of the latest jobs of each step. Index: history_finished, backwards in each step.
-- takes: since timestamptz, until timestamptz, step interval, tenant text, samples int8
-- gives: at timestamptz, run_time interval, lag interval
select s.at, greatest(h.finished_at - h.started_at, interval '0') as run_time,
       greatest(h.started_at - h.run_at, interval '0') as lag
from generate_series(:since::timestamptz, :until::timestamptz - interval '1 microsecond', :step::interval) s(at)
  cross join lateral (
    select finished_at, started_at, run_at, tenant from tidemill.history
    where finished_at >= s.at and finished_at < s.at + :step
    order by finished_at desc, id desc limit :samples) h
where h.started_at is not null
  and h.tenant = :tenant -- when tenant
order by s.at

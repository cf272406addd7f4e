-- log: appends log lines of held jobs; returns the lost ids.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- items: job_id uuid, number int8, worker uuid, at timestamptz, level text, stage text, message text, details text, duration interval
-- gives: id uuid
with item as materialized (
  select x.*, exists (
    select from tidemill.running r where r.id = x.job_id and r.token = x.number and r.worker is not distinct from x.worker) as held
  from unnest(:job_id::uuid[], :number::bigint[], :worker::uuid[], :at::timestamptz[], :level::text[], :stage::text[], :message::text[],
              :details::text[], :duration::interval[]) with ordinality
    as x(job_id, number, worker, at, level, stage, message, details, duration, n)),
written as (
  insert into tidemill.logs(job_id, number, at, level, stage, message, details, duration)
  select job_id, number, at, level, stage, message, details, duration from item
  where held
    and (select set_config('synchronous_commit', -- when alone
           case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
  order by n)
select distinct job_id as id from item where not held

-- log: appends log lines of held jobs; answers with the ids that are lost.
-- items: job_id uuid, number int8, at timestamptz, level text, stage text, message text, details text, duration interval
-- gives: id uuid
with item as materialized (
  select x.*, exists (select from tidemill.running r where r.id = x.job_id and r.token = x.number) as held
  from unnest(:job_id::uuid[], :number::bigint[], :at::timestamptz[], :level::text[], :stage::text[], :message::text[],
              :details::text[], :duration::interval[]) with ordinality
    as x(job_id, number, at, level, stage, message, details, duration, n)),
written as (
  insert into tidemill.logs(job_id, number, at, level, stage, message, details, duration)
  select job_id, number, at, level, stage, message, details, duration from item where held order by n)
select distinct job_id as id from item where not held

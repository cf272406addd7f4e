-- write_streams: inserts items of streams of held jobs, each once; returns the lost ids. Index: streams' primary key.
-- Outside a transaction it commits locally: it does not wait for a synchronous standby.
-- `is not distinct from` keeps the planner from using the index running_worker, which has many jobs per worker.
-- items: job_id uuid, number int8, worker uuid, name text, n int8, data text
-- gives: id uuid
with item as materialized (
  select x.*, exists (
    select from tidemill.running r where r.id = x.job_id and r.token = x.number and r.worker is not distinct from x.worker) as held
  from unnest(:job_id::uuid[], :number::bigint[], :worker::uuid[], :name::text[], :n::bigint[], :data::text[])
    as x(job_id, number, worker, name, n, data)),
written as (
  insert into tidemill.streams(job_id, name, number, n, data)
  select job_id, name, number, n, data from item
  where held
    and (select set_config('synchronous_commit', -- when alone
           case current_setting('synchronous_commit') when 'off' then 'off' else 'local' end, true)) is not null -- when alone
  on conflict do nothing)
select distinct job_id as id from item where not held

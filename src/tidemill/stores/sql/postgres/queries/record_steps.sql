-- record_steps: inserts records of held jobs' steps, the first value of a name stands; returns the lost ids.
-- A job with a new record counts attempts and crashes from this execution. Locks the rows of the jobs in the order of their ids: a
-- new claim of a job waits, so that a late record never precedes one of the next worker. Index: checkpoints' primary key.
-- takes: now timestamptz
-- items: job_id uuid, number int8, worker uuid, name text, value text
-- gives: id uuid
with item as materialized (
  select * from unnest(:job_id::uuid[], :number::bigint[], :worker::uuid[], :name::text[], :value::text[]) with ordinality
    as x(job_id, number, worker, name, value, n)),
held as materialized (
  select r.id, r.token, r.worker from tidemill.running r
  where (r.id, r.token) in (select job_id, number from item) order by r.id for no key update),
written as (
  insert into tidemill.checkpoints(job_id, name, value, created_at)
  select distinct on (x.job_id, x.name) x.job_id, x.name, x.value, coalesce(:now::timestamptz, now())
  from item x join held h on h.id = x.job_id and h.token = x.number and h.worker = x.worker
  order by x.job_id, x.name, x.n
  on conflict (job_id, name) do nothing returning job_id),
progressed as (
  update tidemill.running r set attempt = 1, crashes = 0
  where r.id = any(array(select job_id from written)) and (r.attempt > 1 or r.crashes > 0))
select distinct x.job_id as id from item x
where not exists (select from held h where h.id = x.job_id and h.token = x.number and h.worker = x.worker)

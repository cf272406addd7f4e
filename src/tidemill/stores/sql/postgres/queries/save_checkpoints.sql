-- save_checkpoints: writes checkpoints of held jobs over those of the same name; returns the lost ids.
-- Locks the rows of the jobs: a new claim of a job waits, so that a late write never replaces a value of the next worker.
-- takes: now timestamptz
-- items: job_id uuid, number int8, worker uuid, name text, value text
-- gives: id uuid
with item as materialized (
  select * from unnest(:job_id::uuid[], :number::bigint[], :worker::uuid[], :name::text[], :value::text[]) with ordinality
    as x(job_id, number, worker, name, value, n)),
held as materialized (
  select r.id, r.token, r.worker from tidemill.running r
  where (r.id, r.token) in (select job_id, number from item) order by r.id for share),
written as (
  insert into tidemill.checkpoints(job_id, name, value, created_at)
  select distinct on (x.job_id, x.name) x.job_id, x.name, x.value, coalesce(:now::timestamptz, now())
  from item x join held h on h.id = x.job_id and h.token = x.number and h.worker = x.worker
  order by x.job_id, x.name, x.n desc
  on conflict (job_id, name) do update set value = excluded.value, created_at = excluded.created_at)
select distinct x.job_id as id from item x
where not exists (select from held h where h.id = x.job_id and h.token = x.number and h.worker = x.worker)

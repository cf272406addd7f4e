-- take_signal: takes the oldest unread signal of these names for a held job, and writes the step's record, or finds that record.
-- A signal with a key stays without its payload, so that the key is accepted once; any other is deleted.
-- A job that took one has made progress, so its attempts and crashes count from this execution (as in record_steps).
-- Locks the row of the job, so that a late write never takes a signal of the next worker. Index: signals_unread.
-- takes: now timestamptz, job_id uuid, number int8, worker uuid, names texts, record text, before timestamptz
-- gives: lost bool, value text
with held as materialized (
  select r.id from tidemill.running r where r.id = :job_id and r.token = :number and r.worker is not distinct from :worker for no key update),
stood as materialized (select c.value from tidemill.checkpoints c where c.job_id = :job_id and c.name = :record),
taken as materialized (
  select s.position, s.key, '{"is":"signal","name":' || to_json(s.name)::text
    || ',"source":' || coalesce(to_json(s.source)::text, 'null')
    || ',"at":' || (extract(epoch from s.created_at) * 1000000)::bigint::text || ',"v":' || coalesce(s.payload, 'null') || '}' as value
  from tidemill.signals s
  where s.job_id = (select id from held) and s.taken_at is null and s.name = any(:names::text[])
    and s.created_at <= :before -- when before
    and not exists (select from stood)
  order by s.position limit 1 for update of s),
gone as (
  delete from tidemill.signals s using taken t where s.job_id = :job_id and s.position = t.position and t.key is null),
kept as (
  update tidemill.signals s set taken_at = coalesce(:now::timestamptz, now()), payload = null
  from taken t where s.job_id = :job_id and s.position = t.position and t.key is not null),
written as (
  insert into tidemill.checkpoints(job_id, name, value, created_at)
  select :job_id, :record, t.value, coalesce(:now::timestamptz, now()) from taken t returning job_id),
progressed as (
  update tidemill.running r set attempt = 1, crashes = 0
  where r.id = (select job_id from written) and (r.attempt > 1 or r.crashes > 0))
select not exists (select from held) as lost,
  case when exists (select from held) then coalesce((select s.value from stood s), (select t.value from taken t)) end as value

-- free_jobs: moves waiting jobs to ready.
-- By id, never by ctid: a row that changed since the snapshot must not be missed. The expression keeps the planner from parked_state.
freed as (
  delete from tidemill.parked p where p.id = any({jobs}) and p.state || '' = 'waiting'
  returning
    -- include: waiting_columns(prefix=p)
  ),
reachable as (delete from tidemill.unreachable_jobs u using freed f where u.job_id = f.id),
into_ready as (
  insert into tidemill.ready(
    -- include: waiting_columns
    )
  select
    -- include: job_columns
    , attempt, crashes, token, coalesce(:now::timestamptz, now()), unique_key, until_claimed
  from freed order by id)

-- active_jobs: the unfinished jobs of each schedule's newest fires; by schedule and fire, the oldest first.
-- Indexes: fires_jobs, and the primary keys of the four tables of jobs.
-- takes: ids uuids, newest int8
-- gives: schedule_id uuid, job_id uuid, tenant text, state text
with fired as materialized (
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id
  from (select distinct unhex(value) as id from json_each(:ids)) x
  cross join tidemill_fires f indexed by tidemill_fires_jobs on f.schedule_id = x.id and f.job_id is not null
    and (f.fire_at, f.scope_key) >= (
      select last.fire_at, last.scope_key from (
        select n.fire_at, n.scope_key from tidemill_fires n indexed by tidemill_fires_jobs
        where n.schedule_id = x.id and n.job_id is not null
        order by n.fire_at desc, n.scope_key desc limit max(:newest, 0)) last
      order by last.fire_at, last.scope_key limit 1)),
active as (
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id, r.tenant, 'pending' as state
  from fired f cross join tidemill_ready r on r.id = f.job_id
  union all
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id, s.tenant, 'scheduled'
  from fired f cross join tidemill_scheduled s on s.id = f.job_id
  union all
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id, p.tenant, p.state
  from fired f cross join tidemill_parked p on p.id = f.job_id
  union all
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id, h.tenant, h.state
  from fired f cross join tidemill_running h on h.id = f.job_id)
select schedule_id, job_id, tenant, state from active order by schedule_id, fire_at, scope_key

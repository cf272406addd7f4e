-- active_jobs: the unfinished jobs of each schedule's newest fires; by schedule and fire, the oldest first.
-- Indexes: fires_jobs, and the primary keys of the four tables of jobs.
-- takes: ids uuids, newest int8
-- gives: schedule_id uuid, job_id uuid, tenant text, state text
with fired as materialized (
  select f.schedule_id, f.fire_at, f.scope_key, f.job_id
  from (select distinct unnest(:ids::uuid[]) as id) x
  cross join lateral (
    select f.schedule_id, f.fire_at, f.scope_key, f.job_id from tidemill.fires f
    where f.schedule_id = x.id and f.job_id is not null
    order by f.fire_at desc, f.scope_key collate "C" desc limit :newest) f)
select f.schedule_id, f.job_id, j.tenant, j.state
from fired f
cross join lateral (
  select r.tenant, 'pending'::text as state from tidemill.ready r where r.id = f.job_id
  union all
  select s.tenant, 'scheduled'::text from tidemill.scheduled s where s.id = f.job_id
  union all
  select p.tenant, p.state from tidemill.parked p where p.id = f.job_id
  union all
  select h.tenant, h.state from tidemill.running h where h.id = f.job_id) j
order by f.schedule_id, f.fire_at, f.scope_key collate "C"

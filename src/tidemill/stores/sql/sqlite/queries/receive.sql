-- receive: inserts copies of another store's jobs, which wait; returns the ids that were not stored.
-- Collects the batch in a temporary table. A job whose unique key is held is inserted without it.
-- takes: now timestamptz, reason text
-- items: id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval, run_at timestamptz
-- items: created_at timestamptz, expires_at timestamptz, unique_key text, until_claimed bool, window_ends_at timestamptz
-- items: limits text, details text, args text
-- gives: id uuid
delete from temp.tidemill_item_enqueue
;
insert into temp.tidemill_item_enqueue(id, tenant, queue, task, priority, max_attempts, timeout, due_at, created_at, expires_at,
                                       unique_key, until_claimed, window_ends_at, limits, details, tied, args)
values (:id, :tenant, :queue, :task, :priority, :max_attempts, :timeout, :run_at, :created_at, :expires_at,
        :unique_key, :until_claimed, :window_ends_at, :limits, :details, 0, :args)
;
delete from temp.tidemill_item_enqueue as x
where exists (select 1 from tidemill_ready j where j.id = x.id)
   or exists (select 1 from tidemill_scheduled j where j.id = x.id)
   or exists (select 1 from tidemill_parked j where j.id = x.id)
   or exists (select 1 from tidemill_running j where j.id = x.id)
   or exists (select 1 from tidemill_history j where j.id = x.id)
;
insert into tidemill_uniques(tenant, key, job_id, live, window_ends_at)
select tenant, unique_key, id, 1, window_ends_at from temp.tidemill_item_enqueue
where unique_key is not null
order by n
on conflict (tenant, key) do update set job_id = excluded.job_id, live = 1, window_ends_at = excluded.window_ends_at
where not live and (tidemill_uniques.window_ends_at is null or tidemill_uniques.window_ends_at <= :now)
;
update temp.tidemill_item_enqueue as x set unique_key = null, until_claimed = 0
where x.unique_key is not null and not exists (
  select 1 from tidemill_uniques u where u.tenant = x.tenant and u.key = x.unique_key and u.job_id = x.id)
;
insert into tidemill_parked(
  -- include: waiting_columns
  , reason, state, wakes)
select
  -- include: job_columns
  , 0, 0, 0, due_at, unique_key, until_claimed, :reason, 'waiting', 0
from temp.tidemill_item_enqueue
;
-- include: details_of(jobs=temp.tidemill_item_enqueue where true)
;
select id from temp.tidemill_item_enqueue

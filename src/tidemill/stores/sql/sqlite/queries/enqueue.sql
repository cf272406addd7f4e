-- enqueue: inserts a batch of jobs, all or none; returns the ids that were not inserted.
-- Collects the batch in a temporary table. `taken` finds ids that are already stored (then nothing is inserted); free keys are taken,
-- the first one in a batch wins; a job whose key is held is left out.
-- Lines for jobs that are waiting initially are present only if the batch has one.
-- takes: now timestamptz
-- items: id uuid, tenant text, queue text, task text, priority int2, max_attempts int4, timeout interval, run_at timestamptz
-- items: delay interval, expires_at timestamptz, unique_key text, until_claimed bool, hold interval, limits text
-- items: details text, args text, waiting text, tied bool
-- gives: id uuid, taken bool
delete from temp.tidemill_item_enqueue
;
insert into temp.tidemill_item_enqueue(id, tenant, queue, task, priority, max_attempts, timeout, due_at, created_at, expires_at,
                                       unique_key, until_claimed, window_ends_at, limits, details,
                                       waiting, -- when parks
                                       tied,
                                       args)
values (:id, :tenant, :queue, :task, :priority, :max_attempts, :timeout, coalesce(:run_at, :now + max(coalesce(:delay, 0), 0)),
        :now, :expires_at, :unique_key, :until_claimed, :now + :hold, :limits, :details,
        :waiting, -- when parks
        :tied,
        :args)
;
update temp.tidemill_item_enqueue as x set taken = 1
where exists (select 1 from tidemill_ready j where j.id = x.id)
   or exists (select 1 from tidemill_scheduled j where j.id = x.id)
   or exists (select 1 from tidemill_parked j where j.id = x.id)
   or exists (select 1 from tidemill_running j where j.id = x.id)
   or exists (select 1 from tidemill_history j where j.id = x.id)
;
insert into tidemill_uniques(tenant, key, job_id, live, window_ends_at)
select tenant, unique_key, id, 1, window_ends_at from temp.tidemill_item_enqueue
where unique_key is not null and not exists (select 1 from temp.tidemill_item_enqueue where taken)
order by n
on conflict (tenant, key) do update set job_id = excluded.job_id, live = 1, window_ends_at = excluded.window_ends_at
where not live and (tidemill_uniques.window_ends_at is null or tidemill_uniques.window_ends_at <= :now)
;
update temp.tidemill_item_enqueue as x set left_out = 1
where exists (select 1 from temp.tidemill_item_enqueue where taken)
   or (x.unique_key is not null and not exists (
         select 1 from tidemill_uniques u
         where u.tenant = x.tenant and u.key = x.unique_key and u.job_id = x.id and u.live))
;
insert into tidemill_ready(
  -- include: waiting_columns
  )
select
  -- include: job_columns
  , 0, 0, 0, due_at, unique_key, until_claimed
from temp.tidemill_item_enqueue where not left_out and due_at <= :now
  and waiting is null -- when parks
order by n
;
insert into tidemill_scheduled(
  -- include: waiting_columns
  )
select
  -- include: job_columns
  , 0, 0, 0, due_at, unique_key, until_claimed
from temp.tidemill_item_enqueue where not left_out and due_at > :now
  and waiting is null -- when parks
;
insert into tidemill_parked( -- when parks
  -- include: waiting_columns -- when parks
  , reason, state, wakes) -- when parks
select -- when parks
  -- include: job_columns -- when parks
  , 0, 0, 0, created_at, unique_key, until_claimed, waiting, 'waiting', 0 -- when parks
from temp.tidemill_item_enqueue where not left_out and waiting is not null -- when parks
;
-- include: details_of(jobs=temp.tidemill_item_enqueue where not left_out)
;
select id, taken from temp.tidemill_item_enqueue where left_out

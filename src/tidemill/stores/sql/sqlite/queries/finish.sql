-- finish: applies every transition of a held job, keyed by id, token and worker; returns the lost ids.
-- Collects the batch in a temporary table, looks each job up once, and then works table by table. Ended jobs move to history with
-- their last execution; for released jobs that execution becomes a separate row. A job with a cancel request gets the
-- state `on_cancel`, if there is one, for the reason of the request. Every end is counted in the journal of ends. Lines for jobs
-- that do not end, and for jobs that keep less than everything, are present only if the batch has one. Rows that were just inserted
-- have the last row numbers. A batch of completed jobs is `alike` if their task, queue, tenant and worker are the same, else `mixed`.
-- takes: now timestamptz
-- items: id uuid, token int8, worker uuid, to_state text, execution text, reason text, delay interval, refund bool, crashed bool
-- items: result text, error text, started_ago float8, ended_ago float8, on_cancel text, keep text
-- items: fingerprint text, variant text, cause text, message text
-- gives: id uuid
delete from temp.tidemill_item_finish
;
delete from temp.tidemill_held
;
delete from temp.tidemill_lost
;
insert into temp.tidemill_item_finish(
  delay, refund, on_cancel, -- when releases
  keep, -- when light
  fingerprint, variant, cause, message, -- when failing
  id, token, worker, to_state, execution, why, crashed, result, error, started_ago, ended_ago)
values (
  :delay, :refund, :on_cancel, -- when releases
  :keep, -- when light
  :fingerprint, :variant, :cause, :message, -- when failing
  :id, :token, :worker, :to_state, :execution, :reason, :crashed, :result, :error, :started_ago, :ended_ago)
;
insert into temp.tidemill_held(place, n, new_state, keyed)
select r.rowid, x.n, case when r.cancel_reason is null then x.to_state else coalesce(x.on_cancel, x.to_state) end,
       r.unique_key is not null
from temp.tidemill_item_finish x cross join tidemill_running r on r.id = x.id and r.token = x.token and r.worker = x.worker
  and not r.tied -- when plain
;
insert or ignore into temp.tidemill_lost(id)
select x.id from temp.tidemill_item_finish x
where (select count(*) from temp.tidemill_held) < (select count(*) from temp.tidemill_item_finish)
  and not exists (select 1 from tidemill_running r where r.id = x.id and r.token = x.token and r.worker = x.worker
                  and not r.tied -- when plain
                  )
;
insert into tidemill_history(
  -- include: job_columns
  , attempt, crashes, token, run_at, unique_key, reason, state, execution, worker, claimed_at, started_at, finished_at,
  cancel_reason, progress, result, error)
select
  -- include: job_columns(prefix=r)
  , r.attempt, r.crashes + x.crashed, r.token, r.run_at, r.unique_key,
  case when h.new_state <> x.to_state then r.cancel_reason else x.why end, h.new_state, x.execution, r.worker, r.claimed_at,
  coalesce(:now - cast(round(x.started_ago * 1000000) as integer), r.started_at),
  :now - cast(round(x.ended_ago * 1000000) as integer), r.cancel_reason, r.progress, x.result, x.error
from
-- include: finishing
where h.ends
  and x.keep <> 'nothing' -- when light
;
with ending as ( -- when mixed
  select tenant, task, queue, worker, state, execution, attempt, run_at, started_at, finished_at -- when mixed
  from tidemill_history where changes() > 0 and rowid > last_insert_rowid() - changes() -- when mixed
  union all -- when light
  -- include: finished_executions(state=h.new_state) -- when light
  where h.ends and x.keep = 'nothing' -- when light
  union all -- when releases
  -- include: finished_executions(state=null) -- when releases
  where not h.ends -- when releases
  ), -- when mixed
-- include: journal_ends -- when mixed
-- include: journal_alike_ends -- when alike
-- include: finished_failures -- when failing
-- include: light_jobs -- when light
-- include: released_jobs -- when releases
-- include: release_keys(jobs=temp.tidemill_held h cross join tidemill_running r on r.rowid = h.place where h.ends and h.keyed; lets_go=false)
delete from tidemill_running where rowid in (select place from temp.tidemill_held)
;
select id from temp.tidemill_lost

-- move: transitions of jobs that no worker holds, each only from an expected state; returns the changed ids.
-- Collects the batch and the matching jobs in temporary tables. The last execution of a reopened job becomes a separate row; an
-- ending job releases its unique key and is counted in the journal of ends. Only a claim assigns a job
-- to a worker, so a move to a held state matches no job. A reviewed job that ends keeps the start of the execution that requested the review.
-- takes: now timestamptz
-- items: id uuid, tenant text, expect text, to_state text, reason text, delay interval, restart bool, result text
-- items: lets_go bool
-- gives: id uuid
delete from temp.tidemill_item_move
;
delete from temp.tidemill_moved
;
insert into temp.tidemill_item_move(id, tenant, expect, to_state, why, delay, restart, result, lets_go)
select :id, :tenant, ',' || :expect || ',', :to_state, :reason, :delay, :restart, :result, :lets_go
where :to_state not in ('claimed', 'running')
;
-- include: move_from(table=ready; state='pending'; old_result=null)
-- include: move_from(table=scheduled; state='scheduled'; old_result=null)
-- include: move_from(table=parked; state=j.state; old_result=j.result)
-- include: move_from(table=history; state=j.state; old_result=null)
insert into tidemill_executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
select j.id, j.token, j.attempt, j.execution, j.worker, j.claimed_at, j.started_at, j.finished_at, j.error, j.reason
from temp.tidemill_moved m cross join tidemill_history j on j.id = m.id where j.execution is not null
;
delete from tidemill_unreachable_jobs where job_id in (select id from temp.tidemill_moved)
;
delete from tidemill_ready where id in (select id from temp.tidemill_moved)
;
delete from tidemill_scheduled where id in (select id from temp.tidemill_moved)
;
delete from tidemill_parked where id in (select id from temp.tidemill_moved)
;
delete from tidemill_waits where job_id in (select id from temp.tidemill_moved)
;
delete from tidemill_history where id in (select id from temp.tidemill_moved)
;
insert into tidemill_ready(
  -- include: waiting_columns
  , reason)
select
  -- include: job_columns
  , attempt, crashes, token, due_at, unique_key, until_claimed, why
from temp.tidemill_moved where to_state = 'pending' order by n
;
insert into tidemill_scheduled(
  -- include: waiting_columns
  , reason)
select
  -- include: job_columns
  , attempt, crashes, token, due_at, unique_key, until_claimed, why
from temp.tidemill_moved where to_state = 'scheduled'
;
insert into tidemill_parked(
  -- include: waiting_columns
  , reason, state, wakes)
select
  -- include: job_columns
  , attempt, crashes, token, due_at, unique_key, until_claimed, why, 'waiting', 0
from temp.tidemill_moved where to_state = 'waiting'
;
insert into tidemill_history(
  -- include: waiting_columns
  , reason, state, started_at, finished_at, result)
select
  -- include: job_columns
  , attempt, crashes, token, run_at, unique_key, until_claimed, why, to_state,
  (select e.started_at from tidemill_executions e where e.job_id = m.id and e.number = m.token and e.state = 'review'
     and m.old_state = 'review_needed'),
  :now, result
from temp.tidemill_moved m where to_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')
;
with ending as (select * from tidemill_history where id in (select id from temp.tidemill_moved)),
-- include: journal_ends
-- include: release_keys(jobs=temp.tidemill_moved where to_state not in ('pending', 'scheduled', 'waiting') and unique_key is not null; lets_go=job_id in (select id from temp.tidemill_item_move where lets_go))
select id from temp.tidemill_moved

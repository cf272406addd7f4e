-- move: transitions of jobs that no worker holds, each only from an expected state; returns the changed ids.
-- Collects the batch and the matching jobs in temporary tables. The last execution of a reopened job becomes a separate row; an
-- ending job releases its unique key. Only a claim assigns a job to a worker, so a move to a held state matches no job.
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
insert into temp.tidemill_moved(n, id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                                expires_at, timeout, unique_key, until_claimed, limits, detailed, args, to_state, why, due_at,
                                result)
select x.n, j.id, j.tenant, j.queue, j.task, j.priority, case when not x.restart then j.attempt else 0 end, j.max_attempts,
       case when not x.restart then j.crashes else 0 end, j.token, j.run_at, j.created_at, j.expires_at, j.timeout, j.unique_key,
       j.until_claimed, j.limits, j.detailed, j.args, x.to_state, x.why, :now + x.delay, x.result
from temp.tidemill_item_move x cross join tidemill_ready j on j.id = x.id
where x.tenant in ('*', j.tenant) and instr(x.expect, ',pending,') > 0
;
insert into temp.tidemill_moved(n, id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                                expires_at, timeout, unique_key, until_claimed, limits, detailed, args, to_state, why, due_at,
                                result)
select x.n, j.id, j.tenant, j.queue, j.task, j.priority, case when not x.restart then j.attempt else 0 end, j.max_attempts,
       case when not x.restart then j.crashes else 0 end, j.token, j.run_at, j.created_at, j.expires_at, j.timeout, j.unique_key,
       j.until_claimed, j.limits, j.detailed, j.args, x.to_state, x.why, :now + x.delay, x.result
from temp.tidemill_item_move x cross join tidemill_scheduled j on j.id = x.id
where x.tenant in ('*', j.tenant) and instr(x.expect, ',scheduled,') > 0
;
insert into temp.tidemill_moved(n, id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                                expires_at, timeout, unique_key, until_claimed, limits, detailed, args, to_state, why, due_at,
                                result)
select x.n, j.id, j.tenant, j.queue, j.task, j.priority, case when not x.restart then j.attempt else 0 end, j.max_attempts,
       case when not x.restart then j.crashes else 0 end, j.token, j.run_at, j.created_at, j.expires_at, j.timeout, j.unique_key,
       j.until_claimed, j.limits, j.detailed, j.args, x.to_state, x.why, :now + x.delay, coalesce(x.result, j.result)
from temp.tidemill_item_move x cross join tidemill_parked j on j.id = x.id
where x.tenant in ('*', j.tenant) and instr(x.expect, ',' || j.state || ',') > 0
;
insert into temp.tidemill_moved(n, id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                                expires_at, timeout, unique_key, until_claimed, limits, detailed, args, to_state, why, due_at,
                                result)
select x.n, j.id, j.tenant, j.queue, j.task, j.priority, case when not x.restart then j.attempt else 0 end, j.max_attempts,
       case when not x.restart then j.crashes else 0 end, j.token, j.run_at, j.created_at, j.expires_at, j.timeout, j.unique_key,
       j.until_claimed, j.limits, j.detailed, j.args, x.to_state, x.why, :now + x.delay, x.result
from temp.tidemill_item_move x cross join tidemill_history j on j.id = x.id
where x.tenant in ('*', j.tenant) and instr(x.expect, ',' || j.state || ',') > 0
;
insert into tidemill_executions(job_id, number, attempt, state, worker, claimed_at, started_at, finished_at, error, reason)
select j.id, j.token, j.attempt, j.execution, j.worker, j.claimed_at, j.started_at, j.finished_at, j.error, j.reason
from temp.tidemill_moved m cross join tidemill_history j on j.id = m.id where j.execution is not null
;
delete from tidemill_ready where id in (select id from temp.tidemill_moved)
;
delete from tidemill_scheduled where id in (select id from temp.tidemill_moved)
;
delete from tidemill_parked where id in (select id from temp.tidemill_moved)
;
delete from tidemill_history where id in (select id from temp.tidemill_moved)
;
insert into tidemill_ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                           expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, due_at, created_at, expires_at, timeout,
       unique_key, until_claimed, limits, detailed, why, args
from temp.tidemill_moved where to_state = 'pending' order by n
;
insert into tidemill_scheduled(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                               expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args)
select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, due_at, created_at, expires_at, timeout,
       unique_key, until_claimed, limits, detailed, why, args
from temp.tidemill_moved where to_state = 'scheduled'
;
insert into tidemill_history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                             expires_at, timeout, unique_key, until_claimed, limits, detailed, reason, args, state, finished_at,
                             result)
select id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, expires_at, timeout,
       unique_key, until_claimed, limits, detailed, why, args, to_state, :now, result
from temp.tidemill_moved where to_state in ('completed', 'failed', 'timed_out', 'cancelled', 'dead_lettered')
;
delete from temp.tidemill_keyed
;
insert into temp.tidemill_keyed(id, tenant, key)
select id, tenant, unique_key from temp.tidemill_moved where to_state not in ('pending', 'scheduled') and unique_key is not null
;
delete from tidemill_uniques
where (tenant, key, job_id) in (select tenant, key, id from temp.tidemill_keyed)
  and (window_ends_at is null or window_ends_at <= :now or job_id in (select id from temp.tidemill_item_move where lets_go))
;
update tidemill_uniques set live = 0
where (tenant, key, job_id) in (select tenant, key, id from temp.tidemill_keyed)
  and window_ends_at > :now
;
select id from temp.tidemill_moved

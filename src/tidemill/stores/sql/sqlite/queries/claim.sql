-- claim: claims pending jobs for one worker, lane by lane.
-- One index scan of ready_claim per lane, from its watermark on, because there are no lateral joins; earlier lanes count against the
-- limit. A write transaction excludes other writers, so nothing is locked. The result is read before the rows are moved, because
-- RETURNING would collect it a second time. A worker without a live lease gets nothing: one lookup of the worker per lane.
-- takes: now timestamptz, worker uuid, state text, limit int4, tasks texts
-- items: lane_queue text, lane_tenant text, lane_priority int2, lane_gate text, lane_low int8, lane_quota int4
-- gives: id uuid, task text, queue text, tenant text, priority int2, attempt int4, max_attempts int4, crashes int4
-- gives: token int8, run_at timestamptz, created_at timestamptz, expires_at timestamptz, timeout interval, args text
-- gives: unique_key text, limits text, detailed bool, seq int8
delete from temp.tidemill_got
;
insert or ignore into temp.tidemill_got(seq, keyed)
select seq, until_claimed and unique_key is not null
from tidemill_ready indexed by tidemill_ready_claim
where queue = :lane_queue and tenant = :lane_tenant and priority = :lane_priority and gate = :lane_gate
  and seq >= :lane_low
  and exists (select 1 from tidemill_workers w where w.id = :worker and w.state <> 'stopped' and w.expires_at > :now)
  and task in (select value from json_each(:tasks)) -- when tasks
order by seq limit max(min(:lane_quota, :limit - (select count(*) from temp.tidemill_got)), 0)
;
select r.id, r.task, r.queue, r.tenant, r.priority, r.attempt + 1 as attempt, r.max_attempts, r.crashes, r.token + 1 as token,
       r.run_at, r.created_at, r.expires_at, r.timeout, r.args, case when not r.until_claimed then r.unique_key end as unique_key,
       r.limits, r.detailed, r.seq
from temp.tidemill_got g cross join tidemill_ready r on r.seq = g.seq
;
insert into tidemill_running(
  -- include: job_columns
  , attempt, crashes, token, run_at, unique_key, state, worker, claimed_at, started_at)
select
  -- include: job_columns(prefix=r)
  , r.attempt + 1, r.crashes, r.token + 1, r.run_at, case when not r.until_claimed then r.unique_key end,
  case r.crashes when 0 then :state else 'claimed' end, :worker, :now, case when r.crashes = 0 and :state = 'running' then :now end
from temp.tidemill_got g cross join tidemill_ready r on r.seq = g.seq
;
-- include: release_keys(jobs=temp.tidemill_got g cross join tidemill_ready r on r.seq = g.seq where g.keyed; lets_go=false)
delete from tidemill_ready where seq in (select seq from temp.tidemill_got)

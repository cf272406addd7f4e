-- move_from: collects the jobs of a batch that are in an expected state in a table.
insert into temp.tidemill_moved(
  -- include: waiting_columns
  , n, old_state, to_state, why, due_at, result)
select
  -- include: job_columns(prefix=j)
  , case when not x.restart then j.attempt else 0 end, case when not x.restart then j.crashes else 0 end, j.token, j.run_at,
  j.unique_key, j.until_claimed, x.n, {state}, x.to_state, x.why, :now + x.delay, coalesce(x.result, {old_result})
from temp.tidemill_item_move x cross join tidemill_{table} j on j.id = x.id
where x.tenant in ('*', j.tenant) and instr(x.expect, ',' || {state} || ',') > 0
;

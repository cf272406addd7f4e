-- move_from: takes the jobs of a batch that are in an expected state out of a table.
delete from tidemill.{table} j using item x
where j.id = x.id and x.tenant in ('*', j.tenant) and {state} = any(string_to_array(x.expect, ','))
returning
  -- include: waiting_columns(prefix=j)
  , {state} as old_state, {old_result} as old_result, x.to_state, x.why, x.delay, x.restart, x.result, x.n),

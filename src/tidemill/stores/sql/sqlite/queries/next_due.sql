-- next_due: when the next job is to be promoted. Indexes: scheduled_due, parked_due.
-- gives: run_at timestamptz
select min(run_at) as run_at
from (select min(run_at) as run_at from tidemill_scheduled
      union all
      select min(run_at) from tidemill_parked where wakes)

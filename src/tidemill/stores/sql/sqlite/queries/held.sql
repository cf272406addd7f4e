-- held: all jobs that a worker holds, the oldest claim first. Index: running_worker.
-- takes: worker uuid
select
  -- include: held_row
from tidemill_running r where r.worker = :worker
order by r.claimed_at, r.id

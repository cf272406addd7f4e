-- held: all jobs that a worker holds, the oldest claim first. Index: running_worker.
-- takes: worker uuid
select
  -- include: held_row
from tidemill.running r where r.worker = :worker::uuid
order by r.claimed_at, r.id
